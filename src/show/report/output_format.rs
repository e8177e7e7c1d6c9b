//! Output formats of every command that lists something.

/// Form of a command's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// Text and tables for reading
    #[default]
    Plain,
    /// JSON Lines: one object per line
    Json,
}
