//! Files of a run's results: the list of them and the content of one, never outside of the folder.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use crate::folder::plain_path;

/// Bytes of a file in a message.
const PIECE_BYTES: usize = 512 << 10;

/// Opens a file of the folder by its path. A link out of the folder is refused.
pub(super) fn open(folder: &Path, path: &str) -> io::Result<File> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let path = plain_path(path).ok_or_else(missing)?;
    let (folder, path) = (folder.canonicalize()?, folder.join(path).canonicalize()?);
    if !path.starts_with(&folder) || !path.is_file() {
        return Err(missing());
    }
    File::open(path)
}

/// Reads the next piece; none at the end.
pub(super) fn piece(file: &mut File) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(PIECE_BYTES);
    file.take(PIECE_BYTES as u64).read_to_end(&mut bytes)?;
    Ok((!bytes.is_empty()).then_some(bytes))
}

/// Calls `each` with the path and size of every file below the folder, in order of paths. Hidden files are
/// left out. Ends when `each` returns false.
pub(super) fn list(folder: &Path, each: &mut dyn FnMut(String, u64) -> bool) -> io::Result<()> {
    let walked = walk(folder, "", each);
    match walked {
        // A run that has not begun has no results.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        walked => walked.map(|_| ()),
    }
}

fn walk(folder: &Path, above: &str, each: &mut dyn FnMut(String, u64) -> bool) -> io::Result<bool> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let Ok(name) = entry.file_name().into_string() else { continue };
        // A file that is being written may have been renamed by now.
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        let path = format!("{above}{name}");
        let goes_on = match () {
            () if name.starts_with('.') => true,
            () if metadata.is_dir() => walk(&entry.path(), &format!("{path}/"), each)?,
            () if metadata.is_file() => each(path, metadata.len()),
            () => true,
        };
        if !goes_on {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::PATH_BYTES_MAX;

    #[test]
    fn paths_stay_in_their_folder() {
        for path in ["summary.json", "frames/a_000001.vtu", "a b/c", "ü.csv", "..a"] {
            assert!(plain_path(path).is_some(), "{path}");
        }
        let long = "a".repeat(PATH_BYTES_MAX + 1);
        for path in [
            "",
            ".",
            "..",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a//b",
            "a/",
            "./a",
            "a\\..\\b",
            "a\0b",
            &long,
        ] {
            assert!(plain_path(path).is_none(), "{path}");
        }
    }

    #[test]
    fn links_out_of_the_folder_are_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (inside, outside) = (folder.path().join("in"), folder.path().join("secret"));
        fs::create_dir_all(inside.join("sub")).expect("creates");
        fs::write(&outside, "secret").expect("writes");
        fs::write(inside.join("sub/file"), "text").expect("writes");
        fs::write(inside.join(".hidden"), "").expect("writes");
        std::os::unix::fs::symlink(&outside, inside.join("link")).expect("links");
        std::os::unix::fs::symlink(folder.path(), inside.join("up")).expect("links");
        assert!(open(&inside, "link").is_err());
        assert!(open(&inside, "up/secret").is_err());
        assert!(open(&inside, "sub").is_err());
        let mut file = open(&inside, "sub/file").expect("is there");
        assert_eq!(piece(&mut file).expect("reads"), Some(b"text".to_vec()));
        assert_eq!(piece(&mut file).expect("reads"), None);
        let mut found = Vec::new();
        list(&inside, &mut |path, bytes| {
            found.push((path, bytes));
            true
        })
        .expect("lists");
        assert_eq!(found, [("sub/file".to_string(), 4)]);
    }
}
