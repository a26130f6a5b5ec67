//! Small pages over HTTP, for metrics and for observers of a run.

use std::{convert::Infallible, io, str::FromStr, sync::Arc, time::Duration};

use amalgam_network::Pages;
use http_body_util::Full;
use hyper::{Method, Request, Response, StatusCode, body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpStream, sync::Semaphore};

/// Connections at once; more wait.
const CONNECTIONS_MAX: usize = 8;

/// Time for the handshake, and for the head of the next request.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Time for a whole connection: browsers open another one.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(60);

/// Largest head of a request [bytes], which is the least that hyper takes.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Address at which pages are served: `HOST:PORT`, or `PORT` of the loopback interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At(String);

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.parse::<u16>().is_ok() {
            return Ok(Self(format!("127.0.0.1:{text}")));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Self(text.into())),
            _ => Err(format!(
                "{text:?} is no address: write PORT or HOST:PORT, for example 9464 or node7:9464"
            )),
        }
    }
}

/// Answer to a request.
pub struct Answer {
    status: StatusCode,
    kind: &'static str,
    body: Bytes,
}

impl Answer {
    /// A page of a media type.
    pub fn ok(kind: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status: StatusCode::OK, kind, body: body.into() }
    }

    /// Answer that there is nothing new.
    pub fn nothing() -> Self {
        Self { status: StatusCode::NO_CONTENT, kind: "text/plain", body: Bytes::new() }
    }

    /// Answer that there is no such page; a sentence says why.
    pub fn missing(why: impl Into<Bytes>) -> Self {
        Self { status: StatusCode::NOT_FOUND, kind: "text/plain", body: why.into() }
    }
}

/// Serves pages on a thread of their own, which ends with the process. `answer` gets the path and the text
/// after a question mark. Returns the start of the pages' address.
///
/// # Errors
/// An address that cannot be listened at.
pub fn serve(
    name: &str,
    at: &At,
    pages: Pages,
    answer: impl Fn(&str, &str) -> Answer + Clone + Send + 'static,
) -> anyhow::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (listener, address) = runtime.block_on(pages.listen(&at.0))?;
    std::thread::Builder::new().name(name.into()).spawn(move || {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
            loop {
                let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let (pages, answer) = (pages.clone(), answer.clone());
                        tokio::task::spawn_local(async move {
                            let conversation = converse(pages, stream, answer);
                            // A connection that breaks off is no fault.
                            let _ = tokio::time::timeout(CONNECTION_DEADLINE, conversation).await;
                            drop(place);
                        });
                    }
                    // Most often too many files are open: other connections may close theirs.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        });
    })?;
    Ok(address_to_open(&address))
}

/// The address that a browser opens: it cannot open an address that stands for all interfaces.
fn address_to_open(address: &str) -> String {
    let Some((scheme, socket)) = address.split_once("//") else { return address.into() };
    match socket.parse::<std::net::SocketAddr>() {
        Ok(at) if at.ip().is_unspecified() => {
            format!("{scheme}//{}:{}", amalgam_network::host_name(), at.port())
        }
        _ => address.into(),
    }
}

/// Answers the requests of a connection.
async fn converse(pages: Pages, stream: TcpStream, answer: impl Fn(&str, &str) -> Answer) -> io::Result<()> {
    let stream = tokio::time::timeout(SILENCE_MAX, pages.accept(stream)).await??;
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        let response = respond(&request, &answer);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(SILENCE_MAX).max_buf_size(HEAD_BYTES_MAX);
    http.serve_connection(TokioIo::new(stream), service).await.map_err(io::Error::other)
}

fn respond<B>(request: &Request<B>, answer: &impl Fn(&str, &str) -> Answer) -> Response<Full<Bytes>> {
    let Answer { status, kind, body } = match *request.method() {
        Method::GET | Method::HEAD => answer(request.uri().path(), request.uri().query().unwrap_or("")),
        _ => Answer { status: StatusCode::METHOD_NOT_ALLOWED, kind: "text/plain", body: "only GET\n".into() },
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("content-type", kind.parse().expect("a header's value"));
    headers.insert("cache-control", "no-store".parse().expect("a header's value"));
    response
}

#[cfg(test)]
mod tests {
    use super::{At, address_to_open};

    #[test]
    fn everywhere_is_no_address_to_open() {
        let here = amalgam_network::host_name();
        assert_eq!(address_to_open("https://0.0.0.0:8443"), format!("https://{here}:8443"));
        assert_eq!(address_to_open("http://[::]:80"), format!("http://{here}:80"));
        assert_eq!(address_to_open("http://127.0.0.1:80"), "http://127.0.0.1:80");
        assert_eq!(address_to_open("http://node7:80"), "http://node7:80");
    }

    #[test]
    fn a_port_alone_is_one_of_the_loopback_interface() {
        let at = |text: &str| text.parse::<At>();
        assert_eq!(at("9464"), Ok(At("127.0.0.1:9464".into())));
        assert_eq!(at("node7:9464"), Ok(At("node7:9464".into())));
        for wrong in ["", "node7", ":9464", "node7:", "99999", "node7:http"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }
}
