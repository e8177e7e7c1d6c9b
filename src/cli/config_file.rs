//! Files with the options that a user always gives: `npubench.toml` of the current folder, then that of the user.
//!
//! A value is the default of an option: the command line and variables of the environment precede it.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, Args, Command};
use toml::de::{DeTable, DeValue};

use super::options::{OutputFormat, OutputOptions};
use crate::{
    domain::did_you_mean_or,
    exit::ExitStatus,
    report::{plain_table, print_data, print_note, trim_lines},
    session::CommandError,
};

/// Name of the file in the current folder, and below `npubench` in the folder of the user's settings.
const FILE: &str = "npubench.toml";
/// Commands that npubench starts itself.
const INTERNAL: [&str; 2] = ["guard", "stand-in"];

/// Returns true for a command that npubench starts itself, which has no options of users.
pub(super) fn is_internal(word: &OsStr) -> bool {
    INTERNAL.iter().any(|name| word == *name)
}

/// Prints the files with options and what they set
///
/// `npubench.toml` in the current folder precedes the one in `$XDG_CONFIG_HOME/npubench` (`~/.config/npubench`). A key is an
/// option without its hyphens, and a table is a command; keys outside of tables are for all commands that have the option.
/// The command line and variables such as NPUBENCH_DB precede both files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  npubench config
  npubench config --format json")]
pub(super) struct ConfigOptions {
    #[command(flatten)]
    output: OutputOptions,
}

/// An option that a file sets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ConfiguredOption {
    /// Words of the command; empty for all commands with the option.
    command: Vec<String>,
    option: String,
    value: String,
    file: PathBuf,
    line: usize,
}

impl ConfiguredOption {
    fn place(&self) -> String {
        format!("`{}`:{}", self.file.display(), self.line)
    }
}

/// Options of all files, those that precede last.
#[derive(Clone, Debug, Default)]
pub(super) struct ConfigFiles {
    files: Vec<PathBuf>,
    options: Vec<ConfiguredOption>,
}

/// Returns the files that may exist, those that precede last.
fn candidates() -> Vec<PathBuf> {
    let home =
        env::var_os("HOME").filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(".config"));
    let settings =
        env::var_os("XDG_CONFIG_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from).or(home);
    let user = settings.map(|folder| folder.join("npubench").join(FILE));
    user.into_iter().chain([PathBuf::from(FILE)]).collect()
}

impl ConfigFiles {
    /// Reads the files that exist. Fails for a file that cannot be read or has an unknown command or option.
    pub(super) fn read(commands: &Command) -> Result<Self, CommandError> {
        let mut found = Self::default();
        for file in candidates() {
            // The settings of another user, whose home folder is still that of the environment, are not those of this one.
            let is_hidden = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
            if fs::metadata(&file).is_err_and(is_hidden) {
                continue;
            }
            let text = match fs::read_to_string(&file) {
                Ok(text) => text,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    continue;
                }
                Err(error) => {
                    return Err(CommandError::bad_input(
                        format!("`{}` cannot be read: {error}", file.display()),
                        "correct its permissions, or move it away",
                    ));
                }
            };
            found.options.extend(parse(&file, &text, commands)?);
            found.files.push(file);
        }
        Ok(found)
    }

    /// Returns the files.
    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Makes the values the defaults of their options.
    pub(super) fn apply(&self, commands: Command) -> Command {
        self.options.iter().fold(commands, |commands, option| apply_option(commands, &option.command, option))
    }
}

/// Sets the default of an option of the command with these words, or of all commands below it.
fn apply_option(command: Command, words: &[String], option: &ConfiguredOption) -> Command {
    if let [first, rest @ ..] = words {
        return command.mut_subcommand(first, |inner| apply_option(inner, rest, option));
    }
    let command = match option_of(&command, &option.option).map(|arg| arg.get_id().to_string()) {
        Some(id) => command.mut_arg(id, |arg| with_default(arg, &option.value)),
        None => command,
    };
    if !option.command.is_empty() {
        return command;
    }
    let inner: Vec<String> = command
        .get_subcommands()
        .map(|inner| inner.get_name().to_owned())
        .filter(|name| !INTERNAL.contains(&name.as_str()))
        .collect();
    inner
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, |inner| apply_option(inner, &[], option)))
}

fn with_default(arg: Arg, value: &str) -> Arg {
    let is_flag = matches!(arg.get_action(), ArgAction::SetTrue);
    match (is_flag, value) {
        (true, "false") => arg,
        _ => arg.default_value(value.to_owned()).required(false),
    }
}

/// Returns the option with a long name.
fn option_of<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|arg| arg.get_long() == Some(name))
}

/// Returns true if a command, or one below it, has the option.
fn has_option(command: &Command, name: &str) -> bool {
    option_of(command, name).is_some() || command.get_subcommands().any(|inner| has_option(inner, name))
}

fn parse(file: &Path, text: &str, commands: &Command) -> Result<Vec<ConfiguredOption>, CommandError> {
    let line_of = |span: &Range<usize>| text[..span.start.min(text.len())].matches('\n').count() + 1;
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(&span));
        CommandError::bad_input(
            format!("`{}`:{line}: {}", file.display(), error.message()),
            "the format is TOML: `option = \"value\"`, with `[command]` above the options of one command",
        )
    })?;
    let mut reader = TableReader { file, line_of: &line_of, commands, options: Vec::new() };
    reader.add_table(table.get_ref(), &mut Vec::new())?;
    Ok(reader.options)
}

struct TableReader<'a> {
    file: &'a Path,
    line_of: &'a dyn Fn(&Range<usize>) -> usize,
    commands: &'a Command,
    options: Vec<ConfiguredOption>,
}

impl TableReader<'_> {
    fn error(&self, span: &Range<usize>, problem: &str, hint: impl Into<String>) -> CommandError {
        CommandError::bad_input(
            format!("`{}`:{}: {problem}", self.file.display(), (self.line_of)(span)),
            hint,
        )
    }

    /// Returns the command with these words.
    fn command(&self, words: &[String]) -> Option<&Command> {
        words.iter().try_fold(self.commands, |command, word| {
            command.find_subcommand(word).filter(|inner| !INTERNAL.contains(&inner.get_name()))
        })
    }

    fn add_table(&mut self, table: &DeTable<'_>, words: &mut Vec<String>) -> Result<(), CommandError> {
        for (key, value) in table {
            let (name, span) = (key.get_ref().to_string(), key.span());
            if let DeValue::Table(inner) = value.get_ref() {
                words.push(name.clone());
                if self.command(words).is_none() {
                    words.pop();
                    let known = self.command(words).map(names_of_commands).unwrap_or_default();
                    let hint = did_you_mean(&name, &known, "`npubench help` lists the commands");
                    return Err(self.error(&span, &format!("no command `{name}`"), hint));
                }
                self.add_table(inner, words)?;
                words.pop();
                continue;
            }
            let value = value_text(value.get_ref()).ok_or_else(|| {
                let expected = "a text, a number, `true`, `false`, or a list of them";
                self.error(
                    &value.span(),
                    &format!("`{name}` has a value of another kind"),
                    format!("expected {expected}"),
                )
            })?;
            let is_known = self.command(words).is_some_and(|command| match words.is_empty() {
                true => has_option(command, &name),
                false => option_of(command, &name).is_some(),
            });
            if !is_known {
                let known = self.command(words).map(names_of_options).unwrap_or_default();
                let command = if words.is_empty() {
                    "no command has the option".to_owned()
                } else {
                    format!("`npubench {}` has no option", words.join(" "))
                };
                let hint = did_you_mean(&name, &known, "`npubench help COMMAND` lists its options");
                return Err(self.error(&span, &format!("{command} `--{name}`"), hint));
            }
            let line = (self.line_of)(&span);
            self.options.push(ConfiguredOption {
                command: words.clone(),
                option: name,
                value,
                file: self.file.to_owned(),
                line,
            });
        }
        Ok(())
    }
}

fn names_of_commands(command: &Command) -> Vec<String> {
    let visible = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    visible.map(|inner| inner.get_name().to_owned()).collect()
}

/// Returns the options of a command and of those below it.
fn names_of_options(command: &Command) -> Vec<String> {
    let own = command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned));
    own.chain(command.get_subcommands().flat_map(names_of_options)).collect()
}

fn did_you_mean(name: &str, known: &[String], otherwise: &str) -> String {
    did_you_mean_or(name, known.iter().map(String::as_str), || otherwise.to_owned())
}

/// Returns a value as an argument; lists are separated by commas. `None` for tables and times.
fn value_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        DeValue::Array(values) => {
            let texts: Option<Vec<String>> = values.iter().map(|value| value_text(value.get_ref())).collect();
            Some(texts?.join(","))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of all commands")]
pub(super) fn run(options: &ConfigOptions, found: &ConfigFiles) -> Result<ExitStatus, CommandError> {
    if options.output.format == OutputFormat::Json {
        let lines = found.options.iter().map(|option| {
            let line = serde_json::json!({
                "command": option.command.join(" "), "option": option.option, "value": option.value,
                "file": option.file, "line": option.line,
            });
            format!("{line}\n")
        });
        print_data(&lines.collect::<String>());
        return Ok(ExitStatus::Done);
    }
    for file in candidates() {
        let state = if found.files.contains(&file) { "is used" } else { "does not exist" };
        print_note(&format!("{} {state}", file.display()));
    }
    if !found.options.is_empty() {
        let mut table = plain_table(["command", "option", "value", "place"]);
        for option in &found.options {
            let command = if option.command.is_empty() { "all".to_owned() } else { option.command.join(" ") };
            table.add_row([
                command,
                format!("--{}", option.option),
                option.value.clone(),
                option.place().replace('`', ""),
            ]);
        }
        print_data(&trim_lines(&table));
    }
    Ok(ExitStatus::Done)
}
