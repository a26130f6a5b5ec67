//! The law of prose: documents are written for readers who read fast.
//!
//! In the README, `docs/guide`, `docs/theory` and `docs/reference` no sentence has more than 35 words. In all
//! documents that explain, numbers have a leading zero, and nothing tells history or names a commit;
//! `docs/results` and the change log may.
//!
//! In all sources, a comment on an item or a module is a sentence or a noun phrase with a full stop.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Longest sentence [words].
const WORDS_MAX: usize = 35;

/// Documents that explain. `docs/results` reports.
const FOLDERS: [&str; 6] =
    ["docs/guide", "docs/theory", "docs/reference", "docs/design", "validation", "deploy"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Markdown below a folder, by path from the root.
fn pages(folder: &str) -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of documents") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(root()).expect("below the root").display().to_string();
                found.push((name, fs::read_to_string(&path).expect("a document")));
            }
        }
    }
    found.sort();
    found
}

/// Text without blocks of code, formulas, tables and comments. Code and formulas within a line are one word.
/// A line that ends a sentence or an item ends with a full stop.
fn prose(text: &str) -> String {
    let (mut inside, mut paragraphs) = (false, String::new());
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") {
            inside = !inside;
            paragraphs.push_str(" . ");
        } else if inside {
        } else if trimmed.is_empty() || trimmed.starts_with(['|', '#', '<', '!']) {
            paragraphs.push_str(" . ");
        } else {
            let item = trimmed.strip_prefix("- ").or_else(|| trimmed.strip_prefix("* "));
            let numbered = trimmed.split_once(". ").filter(|(number, _)| number.parse::<u32>().is_ok());
            let item = item.or(numbered.map(|(_, rest)| rest));
            paragraphs.push_str(if item.is_some() { " . " } else { " " });
            paragraphs.push_str(item.unwrap_or(trimmed));
        }
    }
    let mut plain = String::new();
    for (delimiter, rest) in [("$$", " . "), ("$", " x "), ("`", " x ")] {
        let text = if plain.is_empty() { paragraphs.clone() } else { plain };
        plain = text
            .split(delimiter)
            .enumerate()
            .map(|(at, part)| if at % 2 == 0 { part } else { rest })
            .collect();
    }
    // Addresses of links do not count as words.
    let mut words = String::new();
    let mut rest = plain.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        words.push_str(before);
        words.push(']');
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    words + rest
}

/// Sentences of prose, each as its words.
fn sentences(prose: &str) -> Vec<Vec<&str>> {
    let (mut found, mut sentence) = (Vec::new(), Vec::new());
    for word in prose.split_whitespace() {
        if word.chars().any(char::is_alphanumeric) {
            sentence.push(word);
        }
        let end = word.trim_end_matches([')', '"', '*', ']']);
        let abbreviated = ["Eq.", "Fig.", "e.g.", "i.e."].iter().any(|short| end.ends_with(short));
        if end.ends_with(['.', '?', '!']) && !abbreviated && !sentence.is_empty() {
            found.push(std::mem::take(&mut sentence));
        }
    }
    found.extend(Some(sentence).filter(|sentence| !sentence.is_empty()));
    found
}

#[test]
fn sentences_are_found() {
    let text = "# A heading\n\nOne *two* three (Eq. 4). A `b c` and $d + e$.\n\n- An item\n- [A link](to/a.place)\n\
                | a | table |\n\n```sh\nno words\n```\n\n$$ x\n= y $$\n\n1. First. Second";
    let found: Vec<String> = sentences(&prose(text)).into_iter().map(|sentence| sentence.join(" ")).collect();
    let expected = ["One *two* three (Eq. 4).", "A x and x", "An item", "[A link]", "First.", "Second"];
    assert_eq!(found, expected);
}

#[test]
fn no_sentence_for_readers_is_long() {
    let (mut long, mut count, mut words) = (Vec::new(), 0, 0);
    let folders = ["docs/guide", "docs/theory", "docs/reference"];
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    let readme = [("README.md".to_string(), readme)];
    for (name, text) in folders.iter().flat_map(|folder| pages(folder)).chain(readme) {
        for sentence in sentences(&prose(&text)) {
            count += 1;
            words += sentence.len();
            if sentence.len() > WORDS_MAX {
                long.push(format!("{name}, {} words: {}", sentence.len(), sentence.join(" ")));
            }
        }
    }
    assert!(count > 300, "only {count} sentences");
    println!("{count} sentences of {:.1} words", words as f64 / count as f64);
    assert!(long.is_empty(), "sentences of more than {WORDS_MAX} words:\n{}", long.join("\n"));
}

/// Words that tell history.
const HISTORY: [&str; 5] =
    ["until now", "the code before", "used to be", "by the program before", "so far as of"];

/// A fault of prose in a line, if there is one.
fn fault(line: &str) -> Option<String> {
    let bytes = line.as_bytes();
    let bare = (0..bytes.len().saturating_sub(1)).find(|&at| {
        let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
        bytes[at] == b'.' && bytes[at + 1].is_ascii_digit() && (b" (-[|~^*".contains(&before))
    });
    if let Some(at) = bare {
        return Some(format!("a number without a leading zero: {}", &line[at..]));
    }
    let lower = line.to_lowercase();
    if let Some(words) = HISTORY.iter().find(|words| lower.contains(*words)) {
        return Some(format!("history: {words}"));
    }
    let hash = line.split(|c: char| !c.is_ascii_alphanumeric()).find(|word| {
        (7..=40).contains(&word.len())
            && word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
            && word.bytes().any(|byte| byte.is_ascii_digit())
            && word.bytes().any(|byte| byte.is_ascii_alphabetic())
    });
    hash.map(|hash| format!("a commit: {hash}"))
}

#[test]
fn faults_are_found() {
    for line in ["a radius of .5 m", "|.5|", "as it did until now", "since decbf7b nothing"] {
        assert!(fault(line).is_some(), "{line}");
    }
    for line in ["a radius of 0.5 m", "see .ci/run", "[0.5, 1]", "defaced 1234567 faces", "v1.2"] {
        assert_eq!(fault(line), None, "{line}");
    }
}

#[test]
fn documents_have_leading_zeros_and_no_history() {
    let mut faults = Vec::new();
    for (name, text) in FOLDERS.iter().flat_map(|folder| pages(folder)) {
        let mut inside = false;
        for (at, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                inside = !inside;
            } else if !inside && let Some(fault) = fault(line) {
                faults.push(format!("{name}:{}: {fault}", at + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Sources in a language, by path from the root.
fn sources(language: &str) -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == language) {
                let name = path.strip_prefix(root()).expect("below the root").display().to_string();
                found.push((name, fs::read_to_string(&path).expect("a source")));
            }
        }
    }
    found
}

/// First words of comments that are fragments, or of sentences whose subject has no name yet.
const FRAGMENTS: [&str; 15] = [
    "Of", "That", "Those", "What", "Whether", "How", "Where", "Which", "Who", "Whom", "Whose", "Why", "When",
    "It", "They",
];

/// Comments that begin with one of these marks: line of each, from 1, and its first paragraph.
fn doc_comments(text: &str, marks: &[&'static str]) -> Vec<(usize, String)> {
    let (mut found, mut mark, mut in_first) = (Vec::<(usize, String)>::new(), "", false);
    for (at, line) in text.lines().map(str::trim).enumerate() {
        let before = std::mem::take(&mut mark);
        let Some(of) = marks.iter().copied().find(|mark| line.starts_with(*mark)) else { continue };
        mark = of;
        let words = line[of.len()..].trim();
        if before != of {
            in_first = !words.is_empty();
            found.push((at + 1, words.to_string()));
        } else if words.is_empty() {
            in_first = false;
        } else if in_first && let Some((_, paragraph)) = found.last_mut() {
            *paragraph = format!("{paragraph} {words}");
        }
    }
    found
}

/// A fault of the beginning of a comment, if there is one.
fn fragment(paragraph: &str) -> Option<String> {
    let first = paragraph.split_whitespace().next()?;
    let word = first.trim_matches(|c: char| !c.is_alphanumeric());
    FRAGMENTS.contains(&word).then(|| format!("begins with {word}"))
}

/// A fault of the end of a comment's first paragraph, if there is one.
fn no_end(paragraph: &str) -> Option<String> {
    let end = paragraph.trim_end_matches([')', '"']);
    (!end.ends_with(['.', ':', '?', '!'])).then(|| format!("has no full stop: {paragraph}"))
}

/// Marks of comments on items and modules.
const DOC_MARKS: [&str; 2] = ["///", "//!"];

/// The faults of the comments of a source in Rust: line and fault.
fn comment_faults(text: &str) -> Vec<(usize, String)> {
    let docs = doc_comments(text, &DOC_MARKS).into_iter();
    let docs = docs.filter_map(|(at, words)| Some((at, fragment(&words).or_else(|| no_end(&words))?)));
    let number = |(at, line): (usize, &str)| {
        let found = fault(line.trim().strip_prefix("//")?.trim_start_matches(['/', '!']))?;
        found.starts_with("a number").then_some((at + 1, found))
    };
    docs.chain(text.lines().enumerate().filter_map(number)).collect()
}

#[test]
fn faults_of_comments_are_found() {
    let faults = |text: &str| comment_faults(text).into_iter().map(|(at, fault)| format!("{at}: {fault}"));
    let bad = [
        ("/// Of its length.\nfn f()", "1: begins with Of"),
        ("//! That which is\n//! left.", "1: begins with That"),
        ("let a = 1;\n    /// Those.\n    a: u8,", "2: begins with Those"),
        ("/// What a solver says.", "1: begins with What"),
        ("/// Whether it is so.", "1: begins with Whether"),
        ("/// Which.", "1: begins with Which"),
        ("/// Density of\n/// the fluid\n/// \n/// More.", "1: has no full stop: Density of the fluid"),
        ("//! Module.\n/// Item", "2: has no full stop: Item"),
        ("// about .5 of it", "1: a number without a leading zero: .5 of it"),
        ("/// Density.\n/// About .5 kg.", "2: a number without a leading zero: .5 kg."),
    ];
    for (text, expected) in bad {
        assert_eq!(faults(text).collect::<Vec<_>>(), [expected], "{text}");
    }
    let good = "//! Ofen is no fragment.\n\n/// Density [kg/m^3], about 0.5\n/// of it.\n///\n/// What follows may\n/// \
                ask.\nfn f() {\n    // What it is for\n}\n/// (A remark.)\nconst A: &str = \"/// Of\";";
    assert_eq!(faults(good).count(), 0);
}

#[test]
fn comments_are_sentences_and_their_numbers_have_leading_zeros() {
    let (mut faults, mut comments) = (Vec::new(), 0);
    for (name, text) in sources("rs") {
        comments += doc_comments(&text, &DOC_MARKS).len();
        faults.extend(comment_faults(&text).into_iter().map(|(at, fault)| format!("{name}:{at}: {fault}")));
    }
    assert!(comments > 3000, "only {comments} comments");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn comments_of_contracts_and_docstrings_are_no_fragments() {
    let (mut faults, mut comments) = (Vec::new(), 0);
    for (language, mark) in [("proto", "//"), ("py", r#"""""#)] {
        for (name, text) in sources(language) {
            let found = doc_comments(&text, &[mark]);
            comments += found.len();
            let fault = |(at, words): (usize, String)| Some(format!("{name}:{at}: {}", fragment(&words)?));
            faults.extend(found.into_iter().filter_map(fault));
        }
    }
    assert!(comments > 200, "only {comments} comments");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
