//! The thread that writes frames.

use std::{
    panic,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use super::{Frame, frames::FrameWriter};
use crate::{checkpoint::results::RecorderState, folder::OutputError};

/// Frames that wait while another is written. This bounds memory: a run that is faster than its pictures
/// waits for them.
const WAITING: usize = 1;

enum Work {
    Frame(Frame),
    /// Asks for the extent of the lists after all earlier frames.
    State(SyncSender<RecorderState>),
}

/// Writes frames one after the other, behind the run. It ends with the first failure, which the next call
/// returns.
pub(super) struct FrameThread {
    work: Option<SyncSender<Work>>,
    thread: Option<JoinHandle<Result<(), OutputError>>>,
}

impl FrameThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(mut writer: FrameWriter) -> Result<Self, OutputError> {
        // A pool of its own: a step must not wait for part of a picture that one of its threads took over.
        let name = |k| format!("pictures-{k}");
        let pool = rayon::ThreadPoolBuilder::new().thread_name(name).start_handler(|_| stand_back()).build();
        let pool = pool.map_err(|error| OutputError::Thread(error.to_string()))?;
        let (sender, receiver) = sync_channel(WAITING);
        let thread = thread::Builder::new()
            .name("frames".into())
            .spawn(move || pool.install(move || write(&mut writer, receiver)));
        let thread = thread.map_err(|error| OutputError::Thread(error.to_string()))?;
        Ok(Self { work: Some(sender), thread: Some(thread) })
    }

    /// Hands a frame over; waits only if another frame is already waiting.
    ///
    /// # Errors
    /// The failure of an earlier frame.
    pub(super) fn write(&mut self, frame: Frame) -> Result<(), OutputError> {
        self.send(Work::Frame(frame))
    }

    /// Extent of the lists of frames. All earlier frames are written when this returns.
    ///
    /// # Errors
    /// The failure of an earlier frame.
    pub(super) fn state(&mut self) -> Result<RecorderState, OutputError> {
        let (sender, receiver) = sync_channel(1);
        self.send(Work::State(sender))?;
        match receiver.recv() {
            Ok(state) => Ok(state),
            Err(_) => Err(self.failure()),
        }
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// The failure of an earlier frame.
    pub(super) fn finish(&mut self) -> Result<(), OutputError> {
        self.work = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) => panic::resume_unwind(panic),
            Some(Ok(result)) => result,
            None => Ok(()),
        }
    }

    fn send(&mut self, work: Work) -> Result<(), OutputError> {
        match self.work.as_ref().map(|sender| sender.send(work)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.failure()),
        }
    }

    /// Error that ended the thread.
    fn failure(&mut self) -> OutputError {
        let ended = || OutputError::Thread("it has ended".to_string());
        self.finish().err().unwrap_or_else(ended)
    }
}

impl Drop for FrameThread {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // A run that is dropped without [`Self::finish`] has an error already.
            let _ = thread.join();
        }
    }
}

/// Lowers the priority of this thread, if the system can do so for a thread: the run goes on while a frame is
/// written.
fn stand_back() {
    #[cfg(target_os = "linux")]
    {
        const NICE: i32 = 10;
        // A failure changes only the time that frames take.
        let _ = rustix::process::setpriority_process(None, NICE);
    }
}

fn write(writer: &mut FrameWriter, work: Receiver<Work>) -> Result<(), OutputError> {
    for work in work {
        match work {
            Work::Frame(frame) => writer.write(&frame)?,
            Work::State(answer) => {
                // The receiver may have given up.
                let _ = answer.send(writer.state());
            }
        }
    }
    Ok(())
}
