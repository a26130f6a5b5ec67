//! `amalgam resume`: goes on from a checkpoint, in the same folder.

use std::io::ErrorKind;

use crate::{
    checkpoint::{CheckpointError, Store},
    cli::ResumeArgs,
    console::note,
    error::{CommandError, ending::Ending},
    folder::{Folder, SCENE},
    run::{Options, interrupt::Interrupt, show},
    scene::Scene,
};

/// Goes on with a run from its newest checkpoint, or one that is named. From then on, the files are to the
/// bit those of a run without the interruption.
///
/// # Errors
/// A folder without a checkpoint that can be gone on from, and all that ends a run.
pub fn resume(args: &ResumeArgs) -> Result<Ending, CommandError> {
    let folder = &args.folder;
    let file = folder.join(SCENE);
    let held = match std::fs::metadata(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = folder.display();
            return Err(CommandError::Usage(format!(
                "{folder} holds no results of a run: give the folder that `amalgam run` wrote to, out/NAME OF THE SCENE"
            )));
        }
        _ => Folder::look_at(folder.clone())?,
    };
    let scene = Scene::read(&file, &[])?;
    let store = Store::new(folder);
    store.tidy()?;
    let wrong = |error: CheckpointError| match error {
        CheckpointError::None(_) | CheckpointError::NoSuchStep { .. } => {
            CommandError::Usage(error.to_string())
        }
        _ => CommandError::Failed(error.to_string()),
    };
    let (saved, skipped) = match args.from {
        Some(step) => (store.read(&scene, step).map_err(wrong)?, Vec::new()),
        None => store.newest(&scene).map_err(wrong)?,
    };
    for reason in skipped {
        note(format_args!("warning: a checkpoint is left out: {reason}"));
    }
    args.threads.apply()?;
    let options = Options::resumed(args, &saved);
    show(&scene, &options, &args.seeing, &Interrupt::listen()?, held, |run, folder| run.go_on(folder, &saved))
}
