//! `npubench completions` and `npubench man`: completions of shells and manual pages from the definition of the command line.

use clap::builder::StyledStr;
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use super::prelude::*;
use crate::base::files::write_atomic;

/// Prints the completions of a shell: commands, options and their values
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench completions bash > ~/.local/share/bash-completion/completions/npubench
  npubench completions zsh > ~/.zfunc/_npubench
  npubench completions fish > ~/.config/fish/completions/npubench.fish")]
pub(super) struct CompletionsOptions {
    /// Shell that reads the completions
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the manual page, or writes the pages of all commands
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench man | man -l -
  npubench man --dir ~/.local/share/man/man1")]
pub(super) struct ManOptions {
    /// Existing folder for `npubench.1` and a page for each command, such as `npubench-run.1`
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn completions(
    options: &CompletionsOptions,
    command: &Command,
) -> Result<ExitStatus, CommandError> {
    let mut script = Vec::new();
    generate(options.shell, &mut visible_commands(command), "npubench", &mut script);
    print_data(&String::from_utf8_lossy(&script));
    Ok(ExitStatus::Done)
}

/// Returns the command line without its hidden commands, which clap would complete as well.
fn visible_commands(command: &Command) -> Command {
    let visible = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    Command::new("npubench").version(env!("CARGO_PKG_VERSION")).subcommands(visible.cloned())
}

pub(super) fn man(options: &ManOptions, mut command: Command) -> Result<ExitStatus, CommandError> {
    command.build();
    let Some(folder) = &options.dir else {
        print_data(&page(command));
        return Ok(ExitStatus::Done);
    };
    if !folder.is_dir() {
        return Err(CommandError::bad_input(
            format!("`{}` is not a folder", folder.display()),
            "create it, or give another folder with `--dir`",
        ));
    }
    let written = write_pages(folder, &command, "npubench")?;
    print_note(&format!("{written} pages are in {}", folder.display()));
    Ok(ExitStatus::Done)
}

/// Writes the pages of a command and of those below it, and returns their number. `name` has the names of all commands
/// above, joined by `-` as in the names of git's pages.
fn write_pages(folder: &Path, command: &Command, name: &str) -> Result<usize, CommandError> {
    let mut written = 1;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
    {
        written += write_pages(folder, inner, &format!("{name}-{}", inner.get_name()))?;
    }
    write_atomic(&folder.join(format!("{name}.1")), page(command.clone()).as_bytes())?;
    Ok(written)
}

/// Returns a page in the language of troff. Its examples keep their lines, which `clap_mangen` joins to a paragraph.
fn page(command: Command) -> String {
    let examples = command.get_after_help().map(StyledStr::to_string);
    let mut page = Vec::new();
    // Writing to memory does not fail.
    let _ = Man::new(command.after_help(None::<&str>)).render(&mut page);
    let mut page = String::from_utf8_lossy(&page).into_owned();
    if let Some(examples) = examples.as_deref().and_then(|text| text.strip_prefix("Examples:")) {
        // The backslash is the escape of troff, and its `-` is a typographic hyphen.
        let lines = examples.trim_start_matches('\n').replace('\\', "\\e").replace('-', "\\-");
        page.push_str(&format!(".SH EXAMPLES\n.nf\n{lines}\n.fi\n"));
    }
    page
}
