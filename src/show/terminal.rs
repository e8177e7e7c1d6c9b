//! Terminal of the output: width, colours, pager.

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal as _, Write as _},
    process::{Command, Stdio},
    sync::Arc,
};

use nix::sys::signal::Signal;

use super::prelude::*;
use crate::base::print::{print_hint, shown_data};

const MIN_WIDTH: usize = 40;

/// Returns the width for tables on standard output: `COLUMNS`, else the width of the terminal. `None` without either,
/// so that files and other programs get all columns.
pub(crate) fn output_width() -> Option<usize> {
    let given = env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse::<usize>().ok());
    let of_terminal = || {
        let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
        Some(usize::from(width.0))
    };
    let width = given.filter(|columns| *columns > 0).or_else(of_terminal)?;
    Some(width.max(MIN_WIDTH))
}

/// Prints data through a pager if standard output is a terminal: `NPUBENCH_PAGER`, else `PAGER`, else `less -FRX`. An empty one
/// or `cat` is none. If the pager cannot be started or fails, the text is printed without it.
pub(crate) fn print_paged(text: &str) {
    let is_paged =
        io::stdout().is_terminal() && env::var_os("TERM").is_none_or(|terminal| terminal != "dumb");
    if !(is_paged && show_in_pager(text)) {
        print_data(text);
    }
}

fn show_in_pager(text: &str) -> bool {
    let (own, of_all) = (env::var_os("NPUBENCH_PAGER"), env::var_os("PAGER"));
    let program =
        own.as_ref().or(of_all.as_ref()).map_or("less".into(), |pager| pager.to_string_lossy()).into_owned();
    let Some(mut command) = pager_command(own, of_all) else { return false };
    if env::var_os("LESS").is_none_or(|options| options.is_empty()) {
        command.env("LESS", "FRX");
    }
    // Ctrl-C is for the pager, which would otherwise lose the terminal to the shell.
    let _ = signal_hook::flag::register(Signal::SIGINT as i32, Arc::default());
    let Ok(mut pager) = command.stdin(Stdio::piped()).spawn() else { return false };
    if let Some(mut input) = pager.stdin.take() {
        // The user may leave the pager before its input ends.
        let _ = input.write_all(shown_data(text).as_bytes());
    }
    let problem = match pager.wait().map(|status| status.code()) {
        Ok(Some(0)) => return true,
        // A shell ends so without the program.
        Ok(Some(126 | 127)) => "cannot be started".to_owned(),
        Ok(Some(code)) => format!("failed with exit code {code}"),
        Ok(None) => "was ended by a signal".to_owned(),
        Err(error) => error.to_string(),
    };
    print_warning(&format!("the pager `{program}` {problem}; the output follows without it"));
    print_hint("`NPUBENCH_PAGER=cat` switches pagers off");
    false
}

fn pager_command(own: Option<OsString>, of_all: Option<OsString>) -> Option<Command> {
    let (program, words): (&str, Vec<OsString>) = match own.or(of_all) {
        None => ("less", vec!["-FRX".into()]),
        Some(pager) if pager.is_empty() || pager == "cat" => return None,
        Some(pager) => ("sh", vec!["-c".into(), pager]),
    };
    // It lasts until the user leaves it, and ends with its terminal: it has no limit, and is not started as other programs are.
    let mut command = Command::new(program);
    command.args(words);
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_variable_of_the_pager_comes_first() {
        let program = |own: Option<&str>, of_all: Option<&str>| {
            let command = pager_command(own.map(OsString::from), of_all.map(OsString::from))?;
            let mut words = vec![command.get_program().to_string_lossy().into_owned()];
            words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
            Some(words.join(" "))
        };
        assert_eq!(program(None, None).as_deref(), Some("less -FRX"));
        assert_eq!(program(None, Some("more -s")).as_deref(), Some("sh -c more -s"));
        assert_eq!(program(Some("most"), Some("more")).as_deref(), Some("sh -c most"));
        assert_eq!([program(Some(""), Some("more")), program(None, Some("cat"))], [None, None]);
    }
}
