//! Scenes to a service, and files of results from it.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
};

use amalgam_proto::coordinator::{self as v1, submit_request::Part};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{Client, refused};
use crate::{
    console::note,
    error::CommandError,
    folder::{CHECKPOINTS, plain_path},
    scene::Scene,
};

/// Bytes in a message.
const PIECE_BYTES: usize = 512 << 10;

/// Messages that wait to be sent.
const PIECES_MAX: usize = 4;

fn failed(action: &str, path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Failed(format!("cannot {action} {}: {error}", path.display()))
}

/// Sends a scene and the files that it names; the answer is the run's id.
pub(super) async fn submit(
    client: &mut Client,
    options: v1::Options,
    scene: &Scene,
) -> Result<String, CommandError> {
    let (text, files) = scene.portable();
    let mut opened = Vec::new();
    for (name, path) in files {
        opened.push((name, File::open(&path).map_err(|error| failed("read", &path, &error))?, path));
    }
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let reading = tokio::task::spawn_blocking(move || {
        let send = |part| sender.blocking_send(v1::SubmitRequest { part: Some(part) }).is_ok();
        let mut goes_on = send(Part::Options(options));
        for piece in text.as_bytes().chunks(PIECE_BYTES) {
            goes_on = goes_on && send(Part::Scene(piece.to_vec().into()));
        }
        for (name, mut file, path) in opened {
            // An empty file is sent, too.
            let mut is_first = true;
            loop {
                let mut data = Vec::with_capacity(PIECE_BYTES);
                let read = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut data);
                read.map_err(|error| failed("read", &path, &error))?;
                if !goes_on || data.is_empty() && !is_first {
                    break;
                }
                is_first = false;
                goes_on = send(Part::File(v1::FilePiece { path: name.clone(), data: data.into() }));
            }
        }
        Ok::<(), CommandError>(())
    });
    let answer = client.submit(ReceiverStream::new(receiver)).await;
    // A file that could not be read is the reason for any refusal.
    reading.await.map_err(|error| CommandError::Failed(error.to_string()))??;
    let run = answer.map_err(|status| refused(&status))?.into_inner().run;
    run.map(|run| run.id).ok_or_else(|| CommandError::Failed("the service answered without a run".into()))
}

/// Paths and sizes of a run's results.
pub(crate) async fn files(client: &mut Client, run: &str) -> Result<Vec<(String, u64)>, CommandError> {
    let answer = client.files(v1::FilesRequest { id: run.into() }).await;
    let mut stream = answer.map_err(|status| refused(&status))?.into_inner();
    let mut files = Vec::new();
    while let Some(file) = stream.message().await.map_err(|status| refused(&status))? {
        files.push((file.path, file.bytes));
    }
    Ok(files)
}

/// Copies files of a run's results below a folder: those that are named, or all but checkpoints.
pub(super) async fn fetch(
    client: &mut Client,
    run: &str,
    named: &[String],
    out: &Path,
) -> Result<(), CommandError> {
    let checkpoints = format!("{CHECKPOINTS}/");
    let paths: Vec<String> = match named {
        [] => {
            let all = files(client, run).await?.into_iter().map(|(path, _)| path);
            all.filter(|path| !path.starts_with(&checkpoints)).collect()
        }
        named => named.to_vec(),
    };
    for path in &paths {
        // Whatever path a service names, files are written below the folder only.
        let below = plain_path(path);
        let below = below.ok_or_else(|| CommandError::Failed(format!("{path:?} is no path of a result")))?;
        fetch_one(client, run, path, &out.join(below)).await?;
    }
    note(format_args!("{} files in {}", paths.len(), out.display()));
    Ok(())
}

/// Copies a file, whole or not at all.
pub(crate) async fn fetch_one(
    client: &mut Client,
    run: &str,
    path: &str,
    to: &Path,
) -> Result<(), CommandError> {
    let folder = to.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|error| failed("create the folder", folder, &error))?;
    let mut unfinished = to.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    let mut file = File::create(&unfinished).map_err(|error| failed("write", &unfinished, &error))?;
    let result = match fetch_rest(client, run, path, 0, to, &mut file).await {
        Ok(()) => fs::rename(&unfinished, to).map_err(|error| failed("write", to, &error)),
        Err(error) => Err(error),
    };
    if result.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&unfinished);
    }
    result
}

/// Appends the rest of a file, from a byte on, to `file`; faults name it `to`.
pub(crate) async fn fetch_rest(
    client: &mut Client,
    run: &str,
    path: &str,
    from: u64,
    to: &Path,
    file: &mut File,
) -> Result<(), CommandError> {
    let request = v1::FetchRequest { id: run.into(), path: path.into(), from };
    let answer = client.fetch(request).await;
    let mut stream = answer.map_err(|status| refused(&status))?.into_inner();
    while let Some(piece) = stream.message().await.map_err(|status| refused(&status))? {
        file.write_all(&piece.data).map_err(|error| failed("write", to, &error))?;
    }
    Ok(())
}
