//! Lines on a terminal that are drawn again in place while something goes on.

use std::{
    env, fmt,
    io::{self, IsTerminal as _},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::base::{print::is_quiet, printable::printable};

const TICK: Duration = Duration::from_millis(500);
/// Width of a terminal that does not state it.
const USUAL_WIDTH: usize = 80;

static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

pub(crate) fn print_above(print: impl FnOnce()) {
    let drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match drawn {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// Lines on standard error; they are removed when this is dropped.
#[derive(Debug)]
pub(crate) struct LiveText(ProgressBar);

impl LiveText {
    /// Draws the lines that `text` returns for the width of the terminal until this is dropped; they are cut to that width.
    /// `None` for a quiet command, and without a terminal that can move its cursor.
    pub(crate) fn on_stderr(text: impl Fn(usize) -> String + Clone + Send + Sync + 'static) -> Option<Self> {
        let is_dumb = env::var_os("TERM").is_none_or(|terminal| terminal.is_empty() || terminal == "dumb");
        if is_dumb || is_quiet() || !io::stderr().is_terminal() {
            return None;
        }
        let draw = move |_: &ProgressState, out: &mut dyn fmt::Write| {
            let width = terminal_width();
            let text = text(width);
            let text = printable(&text);
            let lines = text.lines().map(|line| line.chars().take(width).collect::<String>());
            let _ = out.write_str(&lines.collect::<Vec<_>>().join("\n"));
        };
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(
            ProgressStyle::with_template("{text}").expect("a valid template").with_key("text", draw),
        );
        bar.enable_steady_tick(TICK);
        *DRAWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        Some(Self(bar))
    }
}

impl Drop for LiveText {
    fn drop(&mut self) {
        *DRAWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.finish_and_clear();
    }
}

fn terminal_width() -> usize {
    let size = terminal_size::terminal_size_of(io::stderr());
    size.map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0).unwrap_or(USUAL_WIDTH)
}
