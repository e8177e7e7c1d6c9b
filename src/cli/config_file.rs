//! Files with the options that a user always gives: `npubench.toml` of the current folder, then that of the user.
//!
//! A value is the default of an option: the command line and variables of the environment precede it.

use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, parser::ValueSource};
use toml::de::{DeTable, DeValue};

use super::options::{DATABASE_VARIABLE, OutputFormat, OutputOptions, WideOption};
use crate::{
    base::{
        command_error::CommandError,
        exit::ExitStatus,
        print::{print_data, print_note},
        suggest::did_you_mean_or,
    },
    show::table::{FittedColumn, fitted_text},
};

/// Name of the file in the current folder, and below `npubench` in the folder of the user's settings.
const FILE: &str = "npubench.toml";
/// Commands that npubench starts itself.
const INTERNAL: [&str; 2] = ["guard", "stand-in"];

/// Returns true for a command that npubench starts itself, which has no options of users.
pub(super) fn is_internal(word: &OsStr) -> bool {
    INTERNAL.iter().any(|name| word == *name)
}

/// Returns true for arguments that print help, the version, completions or manual pages, which no option of a file changes.
pub(super) fn needs_no_options(commands: &Command, arguments: &[OsString]) -> bool {
    match commands.clone().try_get_matches_from(arguments) {
        Ok(matches) => matches!(matches.subcommand_name(), Some("completions" | "man")),
        Err(error) => !error.use_stderr(),
    }
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
    #[command(flatten)]
    wide: WideOption,
}

/// An option that a file sets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ConfiguredOption {
    /// Words of the command; empty for all commands with the option.
    command: Vec<String>,
    option: String,
    /// One value, or those of a list.
    values: Vec<String>,
    file: PathBuf,
    line: usize,
}

impl ConfiguredOption {
    /// Returns true if a variable of the environment precedes the value, also of commands that read the variable themselves.
    fn is_preceded_by_variable(&self) -> bool {
        self.option == "db" && env::var_os(DATABASE_VARIABLE).is_some_and(|folder| !folder.is_empty())
    }
}

/// The command of a command line, with the options that it or the environment gives.
#[derive(Debug, Default)]
struct GivenOptions {
    /// Words of the command.
    command: Vec<String>,
    /// Ids of the options.
    options: BTreeSet<String>,
}

impl GivenOptions {
    /// Finds the options of arguments; errors are left to the parser that follows.
    fn find(commands: &Command, arguments: &[OsString]) -> Self {
        let mut found = Self::default();
        let mut next = commands.clone().ignore_errors(true).try_get_matches_from(arguments).ok();
        while let Some(matches) = next {
            found.options = given_ids(&matches);
            next = matches.subcommand().map(|(name, inner)| {
                found.command.push(name.to_owned());
                inner.clone()
            });
        }
        found
    }

    /// Returns true if a given option excludes this one of the command with these words.
    fn exclude(&self, words: &[String], command: &Command, option: &Arg) -> bool {
        if self.command != words && !option.is_global_set() {
            return false;
        }
        let conflict = |one: &Arg, other: &Arg| {
            command.get_arg_conflicts_with(one).iter().any(|excluded| excluded.get_id() == other.get_id())
        };
        let is_in_one_group = |given: &Arg| {
            command.get_groups().any(|group| {
                let contains = |arg: &Arg| group.get_args().any(|id| id == arg.get_id());
                !group.clone().is_multiple() && contains(given) && contains(option)
            })
        };
        let given = command.get_arguments().filter(|arg| self.options.contains(arg.get_id().as_str()));
        let mut others = given.filter(|arg| arg.get_id() != option.get_id());
        others.any(|given| conflict(given, option) || conflict(option, given) || is_in_one_group(given))
    }
}

/// Returns the ids of the options that the command line or the environment gives.
fn given_ids(matches: &ArgMatches) -> BTreeSet<String> {
    let is_given = |id: &&clap::Id| {
        matches!(matches.value_source(id.as_str()), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    matches.ids().filter(is_given).map(ToString::to_string).collect()
}

impl ConfiguredOption {
    /// Returns the values as they are shown.
    fn text(&self) -> String {
        self.values.join(",")
    }

    fn place(&self) -> String {
        format!("{}:{}", self.file.display(), self.line)
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

/// Returns true for a file in a folder that this user cannot enter.
fn is_hidden(file: &Path) -> bool {
    fs::metadata(file).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

impl ConfigFiles {
    /// Reads the files that exist. Fails for a file that cannot be read or has an unknown command or option.
    pub(super) fn read(commands: &Command) -> Result<Self, CommandError> {
        let mut found = Self::default();
        for file in candidates() {
            // A user of `su` or `setpriv` has no access to the home folder of `$HOME`.
            if is_hidden(&file) {
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
                    let hint = match error.kind() {
                        io::ErrorKind::InvalidData => "save it as UTF-8, or move it away",
                        _ => "correct its permissions, or move it away",
                    };
                    return Err(CommandError::bad_input(
                        format!("`{}` cannot be read: {error}", file.display()),
                        hint,
                    ));
                }
            };
            found.options.extend(parse(&file, &text, commands)?);
            found.files.push(file);
        }
        Ok(found)
    }

    /// Returns the places of the options whose names and values an error has; if it has none, the files.
    pub(super) fn places_in(&self, error: &str) -> Vec<String> {
        let is_named = |option: &&ConfiguredOption| {
            error.contains(&format!("--{}", option.option))
                && option.values.iter().any(|value| error.contains(&format!("'{value}'")))
        };
        let named = self.options.iter().filter(is_named);
        let named: Vec<String> =
            named.map(|option| format!("{}: `--{}` is set here", option.place(), option.option)).collect();
        if !named.is_empty() {
            return named;
        }
        self.files.iter().map(|file| format!("`{}` sets defaults of options", file.display())).collect()
    }

    /// Makes the values the defaults of their options, but for those that the arguments exclude.
    pub(super) fn apply(&self, commands: Command, arguments: &[OsString]) -> Command {
        if self.options.is_empty() {
            return commands;
        }
        let given = GivenOptions::find(&commands, arguments);
        let applied = self.options.iter().filter(|option| !option.is_preceded_by_variable());
        applied.fold(commands, |commands, option| {
            apply_option(commands, (&mut Vec::new(), &option.command), option, &given)
        })
    }
}

/// Sets the default of an option of the command that `rest` leads to, or of all commands below it. `words` lead to this command.
fn apply_option(
    command: Command,
    (words, rest): (&mut Vec<String>, &[String]),
    option: &ConfiguredOption,
    given: &GivenOptions,
) -> Command {
    if let [first, rest @ ..] = rest {
        words.push(first.clone());
        return command.mut_subcommand(first, |inner| apply_option(inner, (words, rest), option, given));
    }
    let is_general = option.command.is_empty();
    let configured = option_of(&command, &option.option)
        .filter(|arg| (!is_general || accepts(arg, option)) && !given.exclude(words, &command, arg))
        .map(|arg| arg.get_id().to_string());
    let command = match configured {
        Some(id) => command.mut_arg(id, |arg| with_default(arg, &option.values)),
        None => command,
    };
    if !is_general {
        return command;
    }
    let inner: Vec<String> = command
        .get_subcommands()
        .map(|inner| inner.get_name().to_owned())
        .filter(|name| !INTERNAL.contains(&name.as_str()))
        .collect();
    inner.into_iter().fold(command, |command, name| {
        let mut words = [&words[..], std::slice::from_ref(&name)].concat();
        command.mut_subcommand(name, |inner| apply_option(inner, (&mut words, &[]), option, given))
    })
}

/// Returns true if the values are among the possible ones of an option that has such a list.
fn accepts(arg: &Arg, option: &ConfiguredOption) -> bool {
    let possible = arg.get_possible_values();
    let is_possible = |value: &String| possible.iter().any(|one| one.matches(value, false));
    possible.is_empty() || option.values.iter().all(is_possible)
}

/// Sets the default of an option. Options that are given once have their lists separated by commas.
fn with_default(arg: Arg, values: &[String]) -> Arg {
    let is_repeated = matches!(arg.get_action(), ArgAction::Append) && arg.get_value_delimiter().is_none();
    let values = if is_repeated { values.to_vec() } else { vec![values.join(",")] };
    arg.default_values(values).required(false)
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
            format!("{}:{line}: {}", file.display(), error.message()),
            "the format is TOML: `option = \"value\"`, with `[command]` above the options of one command",
        )
    })?;
    let mut reader = TableReader { file, line_of: &line_of, commands, options: Vec::new() };
    reader.add_table(table.get_ref(), &mut Vec::new())?;
    // Options of one command precede those of all, and those of its own commands precede both.
    reader.options.sort_by_key(|option| option.command.len());
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
        CommandError::bad_input(format!("{}:{}: {problem}", self.file.display(), (self.line_of)(span)), hint)
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
            let value_span = value.span();
            let values = value_texts(value.get_ref()).ok_or_else(|| {
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
                let lists = || did_you_mean(&name, &known, "`npubench help COMMAND` lists its options");
                let (problem, hint) = match words.as_slice() {
                    [] => (format!("no command has the option `--{name}`"), lists()),
                    _ if option_of(self.commands, &name).is_some_and(Arg::is_global_set) => (
                        format!("`--{name}` is an option of all commands, not of one"),
                        "set it above the first table".to_owned(),
                    ),
                    words => (format!("`npubench {}` has no option `--{name}`", words.join(" ")), lists()),
                };
                return Err(self.error(&span, &problem, hint));
            }
            let line = (self.line_of)(&span);
            let file = self.file.to_owned();
            let option = ConfiguredOption { command: words.clone(), option: name, values, file, line };
            self.check_values(&option, words, &value_span)?;
            self.options.push(option);
        }
        Ok(())
    }

    /// Refuses values that no command has among the possible ones.
    fn check_values(
        &self,
        option: &ConfiguredOption,
        words: &[String],
        span: &Range<usize>,
    ) -> Result<(), CommandError> {
        let Some(command) = self.command(words) else { return Ok(()) };
        let mut places = Vec::new();
        add_places(command, &option.option, words.is_empty(), &mut places);
        if !places.iter().any(|arg| accepts(arg, option)) {
            let possible: Vec<String> = places
                .iter()
                .flat_map(|arg| arg.get_possible_values())
                .map(|value| value.get_name().to_owned())
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect();
            let problem = format!("`{}` is no value of `{}`", option.text(), option.option);
            let otherwise = format!("possible values are {}", possible.join(", "));
            return Err(self.error(span, &problem, did_you_mean(&option.text(), &possible, &otherwise)));
        }
        Ok(())
    }
}

/// Adds the options of a name of a command, and of those below it.
fn add_places<'c>(command: &'c Command, name: &str, is_general: bool, places: &mut Vec<&'c Arg>) {
    places.extend(option_of(command, name));
    if is_general {
        command.get_subcommands().for_each(|inner| add_places(inner, name, true, places));
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

/// Returns a value, or those of a list, as arguments. `None` for tables, times, and lists of lists.
fn value_texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    let text = match value {
        DeValue::Array(values) => {
            let texts = values.iter().map(|value| value_texts(value.get_ref()));
            let texts: Option<Vec<Vec<String>>> =
                texts.map(|texts| texts.filter(|texts| texts.len() == 1)).collect();
            return texts.map(|texts| texts.concat());
        }
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) | DeValue::Table(_) => return None,
    };
    Some(vec![text])
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of all commands")]
pub(super) fn run(options: &ConfigOptions, found: &ConfigFiles) -> Result<ExitStatus, CommandError> {
    if options.output.format == OutputFormat::Json {
        let lines = found.options.iter().map(|option| {
            let line = serde_json::json!({
                "command": option.command.join(" "), "option": option.option, "value": option.text(),
                "file": option.file, "line": option.line,
            });
            format!("{line}\n")
        });
        print_data(&lines.collect::<String>());
        return Ok(ExitStatus::Done);
    }
    for file in candidates() {
        let state = match () {
            () if found.files.contains(&file) => "is used",
            () if is_hidden(&file) => "is not used: its folder cannot be entered",
            () => "does not exist",
        };
        print_note(&format!("{} {state}", file.display()));
    }
    if !found.options.is_empty() {
        let columns = vec![
            FittedColumn::text("command", 0),
            FittedColumn::text("option", 0),
            FittedColumn::text("value", 0).shortened_to(12),
            FittedColumn::text("place", 0).shortened_to(24),
            FittedColumn::text("preceded by", 0),
        ];
        let rows = found.options.iter().enumerate().map(|(index, option)| {
            let command = if option.command.is_empty() { "all".to_owned() } else { option.command.join(" ") };
            let later = found.options[index + 1..].iter();
            let mut later =
                later.filter(|other| (&other.command, &other.option) == (&option.command, &option.option));
            let first = match option.is_preceded_by_variable() {
                true => DATABASE_VARIABLE.to_owned(),
                false => later.next_back().map(ConfiguredOption::place).unwrap_or_default(),
            };
            vec![
                command,
                format!("--{}", option.option),
                option.text(),
                option.place().replace('`', ""),
                first,
            ]
        });
        print_data(&fitted_text(columns, rows, options.wide.width()));
    }
    Ok(ExitStatus::Done)
}
