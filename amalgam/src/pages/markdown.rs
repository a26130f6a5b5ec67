//! Pages of results in Markdown. The head of a page names the command, the date, the commit and the
//! processor.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::error::CommandError;

/// A page under construction.
#[derive(Clone, Debug)]
pub struct Page {
    text: String,
}

impl Page {
    /// Begins a page. The head says that the given command line wrote it, when, from which commit and on
    /// which processor.
    pub fn new(title: &str, command: &str) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let text = format!(
            "# {title}\n\n| | |\n| --- | --- |\n| written by | `{command}` |\n| date | {} |\n| commit | {} |\n\
             | processor | {}, {threads} threads |\n",
            date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
            commit(),
            processor(),
        );
        Self { text }
    }

    /// Adds a heading of the second level.
    pub fn heading(&mut self, heading: &str) {
        let _ = write!(self.text, "\n## {heading}\n");
    }

    /// Adds a paragraph of Markdown.
    pub fn paragraph(&mut self, text: &str) {
        let _ = write!(self.text, "\n{text}\n");
    }

    /// Adds a list, one item per entry.
    pub fn list(&mut self, items: impl IntoIterator<Item = String>) {
        self.text.push('\n');
        for item in items {
            let _ = writeln!(self.text, "- {item}");
        }
    }

    /// Adds a table. Bars inside cells are escaped.
    pub fn table(&mut self, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let escaped = |cell: String| cell.replace('|', "\\|");
        self.text.push('\n');
        self.text.push_str(&line(head.iter().map(|cell| escaped(cell.to_string())).collect()));
        self.text.push_str(&line(vec!["---".to_string(); head.len()]));
        for row in rows {
            self.text.push_str(&line(row.into_iter().map(escaped).collect()));
        }
    }

    /// Writes the page.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), CommandError> {
        fs::write(path, &self.text)
            .map_err(|error| CommandError::Failed(format!("cannot write {}: {error}", path.display())))
    }
}

/// The day of a time in seconds since 1970 (UTC), by the Gregorian calendar: YYYY-MM-DD.
fn date(seconds: u64) -> String {
    // Days since 0000-03-01, so that a leap day is the last day of its year.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{of_month:02}", era * 400 + year + next)
}

/// The commit that is checked out in the current folder, if it is this repository; else the version of the
/// program.
fn commit() -> String {
    let version = || format!("version {}", env!("CARGO_PKG_VERSION"));
    if !Path::new("scenes/paper/figures.toml").exists() {
        return version();
    }
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return version() };
    // Pages of results change while they are written, so they do not count as changes.
    let changed =
        git(&["status", "--porcelain", "--", ".", ":!docs"]).is_none_or(|changes| !changes.is_empty());
    if changed { format!("{commit} with changes") } else { commit }
}

/// The processor's own name for itself.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_string(), |(_, name)| name.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_735_603_200, "2024-12-31"),
            (4_107_542_400, "2100-03-01"),
        ];
        for (seconds, day) in cases {
            assert_eq!(date(seconds), day);
        }
    }

    #[test]
    fn a_page_has_a_head_and_escapes_bars() {
        let mut page = Page::new("Speed", "amalgam bench solids");
        page.table(&["case", "|v|"], [vec!["a".to_string(), "1".to_string()]]);
        assert!(page.text.starts_with(
            "# Speed\n\n| | |\n| --- | --- |\n| written by | `amalgam bench solids` |\n| date | 2"
        ));
        assert!(page.text.ends_with("\n| case | \\|v\\| |\n| --- | --- |\n| a | 1 |\n"), "{}", page.text);
    }
}
