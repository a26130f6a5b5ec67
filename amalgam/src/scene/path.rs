//! Dotted paths of keys, such as `participants[0].settings.bodies[1].spacing`.

use std::fmt;

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A key of a table.
    Key(String),
    /// An entry of an array, from 0.
    Index(usize),
}

/// Path of a value in a scene.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPath(pub Vec<Segment>);

impl KeyPath {
    /// Reads `a.b[0].c`.
    ///
    /// # Errors
    /// A text that is not such a path, with advice on what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut segments = Vec::new();
        for part in text.split('.') {
            let (key, indices) = part.split_once('[').map_or((part, None), |(key, rest)| (key, Some(rest)));
            let is_key = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
            if key.is_empty() || !key.chars().all(is_key) {
                return Err(format!(
                    "`{text}` is not a key path; write for example participants[0].settings.method"
                ));
            }
            segments.push(Segment::Key(key.to_string()));
            for index in indices.into_iter().flat_map(|rest| rest.split('[')) {
                let number = index.strip_suffix(']').and_then(|digits| digits.parse().ok());
                let number = number.ok_or_else(|| {
                    format!("`[{index}` in `{text}` must be a number in brackets, such as [0]")
                })?;
                segments.push(Segment::Index(number));
            }
        }
        Ok(Self(segments))
    }

    /// This path, one key deeper.
    pub fn key(&self, key: &str) -> Self {
        self.with(Segment::Key(key.to_string()))
    }

    /// This path, one array entry deeper.
    pub fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    fn with(&self, segment: Segment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }

    /// This path, followed by `rest`.
    pub fn join(&self, rest: &Self) -> Self {
        Self(self.0.iter().chain(&rest.0).cloned().collect())
    }

    /// True if `self` is `other` or a parent of `other`.
    pub fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The last key, with the indices after it.
    pub fn last_key(&self) -> Option<String> {
        let at = self.0.iter().rposition(|segment| matches!(segment, Segment::Key(_)))?;
        Some(Self(self.0[at..].to_vec()).to_string())
    }
}

impl From<&serde_path_to_error::Path> for KeyPath {
    fn from(path: &serde_path_to_error::Path) -> Self {
        use serde_path_to_error::Segment as From;
        let segment = |segment: &From| match segment {
            From::Seq { index } => Some(Segment::Index(*index)),
            From::Map { key } => Some(Segment::Key(key.clone())),
            From::Enum { .. } | From::Unknown => None,
        };
        Self(path.iter().filter_map(segment).collect())
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Key(key) if i == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_back_as_written() {
        for text in ["time", "participants[0].settings.bodies[12].spacing", "a[0][1].b-c_d"] {
            assert_eq!(KeyPath::parse(text).expect("a path").to_string(), text);
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in ["", ".", "a..b", "[0]", "a[", "a[x]", "a[0]b", "a b", "a[-1]"] {
            assert!(KeyPath::parse(text).is_err(), "{text}");
        }
    }
}
