//! Echo of control characters on the terminal of a progress display.

use std::io;

use nix::{
    sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr},
    unistd::{getpgrp, tcgetpgrp},
};

/// Keeps the terminal of standard error from showing `^C`, until it is dropped.
///
/// The cursor stands at the right end of the display's last line, so that the echo would move it to the line below, and the
/// first line of the display would remain on the screen. A killed program leaves the terminal usable.
#[derive(Debug)]
pub(super) struct HiddenControlEcho(());

impl HiddenControlEcho {
    /// Hides the echo; `None` if it is hidden already, or for a program in the background.
    pub(super) fn on_stderr() -> Option<Self> {
        set_control_echo(false).then_some(Self(()))
    }
}

impl Drop for HiddenControlEcho {
    fn drop(&mut self) {
        set_control_echo(true);
    }
}

/// Returns true if the setting was changed.
fn set_control_echo(is_shown: bool) -> bool {
    let terminal = io::stderr();
    // The system stops a program in the background that changes its terminal.
    if tcgetpgrp(&terminal) != Ok(getpgrp()) {
        return false;
    }
    let Ok(mut settings) = tcgetattr(&terminal) else { return false };
    if settings.local_flags.contains(LocalFlags::ECHOCTL) == is_shown {
        return false;
    }
    settings.local_flags.set(LocalFlags::ECHOCTL, is_shown);
    tcsetattr(&terminal, SetArg::TCSANOW, &settings).is_ok()
}
