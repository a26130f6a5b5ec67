//! Pages: results in HTML and in Markdown, and small ones over HTTP.

pub mod html;
pub mod http;
pub mod markdown;
