//! A thread that handles messages until its owner is dropped, which waits for its end.

use std::{
    io,
    sync::mpsc::{self, Receiver, Sender},
    thread::{self, JoinHandle},
};

#[derive(Debug)]
pub(crate) struct WorkerThread<T> {
    messages: Option<Sender<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> WorkerThread<T> {
    /// Starts a thread; `work` must return once the sender of its messages is gone.
    pub(crate) fn spawn(name: String, work: impl FnOnce(Receiver<T>) + Send + 'static) -> io::Result<Self> {
        let (messages, inbox) = mpsc::channel();
        let thread = thread::Builder::new().name(name).spawn(move || work(inbox))?;
        Ok(Self { messages: Some(messages), thread: Some(thread) })
    }
}

impl<T> WorkerThread<T> {
    /// Sends a message; it is lost if the thread has ended early.
    pub(crate) fn send(&self, message: T) {
        if let Some(messages) = &self.messages {
            let _ = messages.send(message);
        }
    }
}

impl<T> Drop for WorkerThread<T> {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
