//! What a person sees of long work: spinners on a terminal, plain lines with elapsed seconds elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// How often plain output says that a step still runs: a log that is silent for minutes looks dead.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// The display of one run. Clones share it; any thread may use it.
#[derive(Clone, Debug)]
pub struct Progress {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The spinners; absent where standard error is no terminal.
    bars: Option<MultiProgress>,
    start: Instant,
}

impl Progress {
    /// Spinners when standard error is a terminal, plain lines otherwise.
    pub fn detect() -> Self {
        Self::new(stderr().is_terminal().then(MultiProgress::new))
    }

    /// Plain lines, whatever standard error is.
    pub fn plain() -> Self {
        Self::new(None)
    }

    fn new(bars: Option<MultiProgress>) -> Self {
        Self {
            shared: Arc::new(Shared {
                bars,
                start: Instant::now(),
            }),
        }
    }

    /// Begins a step. The title says what is being done ("build kube-apiserver").
    ///
    /// A step that is dropped without [`Step::done`] shows as failed, so that `?` needs no care.
    pub fn step(&self, title: impl Into<String>) -> Step {
        let title = title.into();
        let display = if let Some(bars) = &self.shared.bars {
            Display::Spinner(spin(bars, &title))
        } else {
            self.note(&title);
            Display::Lines(Heartbeat::start(self.clone(), title.clone()))
        };
        Step {
            progress: self.clone(),
            title,
            start: Instant::now(),
            display,
            ended: false,
        }
    }

    /// Prints one line above the spinners, with the seconds since the run began.
    pub fn note(&self, message: &str) {
        let line = format!("{} {message}", stamp(self.shared.start.elapsed()));
        match &self.shared.bars {
            // A failure to draw is no reason to stop the work that is shown.
            Some(bars) => drop(bars.println(line)),
            None => drop(writeln!(stderr(), "{line}")),
        }
    }
}

/// One piece of work that is being shown.
#[derive(Debug)]
pub struct Step {
    progress: Progress,
    title: String,
    start: Instant,
    display: Display,
    ended: bool,
}

#[derive(Debug)]
enum Display {
    Spinner(ProgressBar),
    Lines(Heartbeat),
}

impl Step {
    /// Says what the step is at ("3 of 6"). Plain output repeats it with its next heartbeat only.
    pub fn detail(&self, detail: &str) {
        match &self.display {
            Display::Spinner(bar) => bar.set_message(format!("{}: {detail}", self.title)),
            Display::Lines(heartbeat) => heartbeat.detail(detail),
        }
    }

    /// Ends the step well. The outcome ("85 MiB") may be empty.
    pub fn done(mut self, outcome: &str) {
        self.end("done", outcome);
    }

    fn end(&mut self, word: &str, outcome: &str) {
        self.ended = true;
        if let Display::Spinner(bar) = &self.display {
            bar.finish_and_clear();
        }
        self.progress
            .note(&closing(&self.title, word, self.start.elapsed(), outcome));
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.ended {
            self.end("failed", "");
        }
    }
}

fn spin(bars: &MultiProgress, title: &str) -> ProgressBar {
    let bar = bars.add(ProgressBar::new_spinner());
    // The template is a constant: should it ever be wrong, the default style still shows the message.
    if let Ok(style) = ProgressStyle::with_template("{spinner:.cyan} {msg} {elapsed:.dim}") {
        bar.set_style(style);
    }
    bar.set_message(title.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// A thread that says now and then that a step still runs; it ends when this is dropped.
#[derive(Debug)]
struct Heartbeat {
    details: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    fn start(progress: Progress, title: String) -> Self {
        let (details, received) = channel::<String>();
        let thread = std::thread::spawn(move || {
            let (start, mut detail) = (Instant::now(), String::new());
            let mut next = start + HEARTBEAT;
            loop {
                match received.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Ok(new) => detail = new,
                    Err(RecvTimeoutError::Timeout) => {
                        progress.note(&closing(&title, "still running", start.elapsed(), &detail));
                        next += HEARTBEAT;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Self {
            details: Some(details),
            thread: Some(thread),
        }
    }

    fn detail(&self, detail: &str) {
        if let Some(details) = &self.details {
            // The thread lives as long as this sender: the send can't fail before the drop.
            drop(details.send(detail.to_owned()));
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        // Closing the channel is the signal to end; a heartbeat after the closing line would mislead.
        self.details = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn stamp(elapsed: Duration) -> String {
    format!("[{:7.1} s]", elapsed.as_secs_f64())
}

fn closing(title: &str, word: &str, elapsed: Duration, outcome: &str) -> String {
    let seconds = elapsed.as_secs_f64();
    match outcome {
        "" => format!("{title}: {word} ({seconds:.1} s)"),
        outcome => format!("{title}: {word} ({seconds:.1} s, {outcome})"),
    }
}

/// A size in bytes as a person reads it, in MiB.
pub fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1024 * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_when_what_and_how_long() {
        assert_eq!(stamp(Duration::from_millis(12_340)), "[   12.3 s]");
        assert_eq!(
            closing("build etcd", "done", Duration::from_millis(1500), "20 MiB"),
            "build etcd: done (1.5 s, 20 MiB)"
        );
        assert_eq!(
            closing("build etcd", "failed", Duration::from_secs(2), ""),
            "build etcd: failed (2.0 s)"
        );
    }

    #[test]
    fn sizes_are_rounded_up_so_that_nothing_is_zero() {
        assert_eq!(mebibytes(1), "1 MiB");
        assert_eq!(mebibytes(2 * 1024 * 1024), "2 MiB");
    }
}
