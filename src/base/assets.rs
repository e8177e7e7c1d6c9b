//! Files embedded in the program (templates, catalogue, grids), and a folder whose files replace them.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use include_dir::{Dir, include_dir};

use crate::base::command_error::Failure;
use crate::base::yaml::YamlError;
use crate::base::{
    files::{MAX_DOCUMENT, entries, read_regular},
    suggest::nearest_name,
};

static TEMPLATES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates");
static OP_REPLAY: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/op_replay");
static GRIDS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/grids");

const BUILT_IN: &str = "built-in";

/// The embedded files, overlaid with the files of a folder.
#[derive(Clone, Debug, Default)]
pub struct AssetFiles {
    folder: Option<PathBuf>,
}

/// A folder of assets that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read `{}`: {source}", path.display())]
pub struct AssetError {
    pub(crate) path: PathBuf,
    #[source]
    pub(crate) source: io::Error,
}

impl Failure for AssetError {
    fn hint(&self) -> String {
        "check the folder given with `--assets`".to_owned()
    }
}

impl From<AssetError> for YamlError {
    fn from(error: AssetError) -> Self {
        let problem = format!("cannot be read: {}", error.source);
        Self::of_file(&error.path, problem, "check the folder given with `--assets`")
    }
}

#[derive(Clone, Debug)]
pub(crate) struct AssetFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// True for an embedded file, which the tests of npubench have checked.
    pub(crate) is_built_in: bool,
}

impl AssetFile {
    pub(crate) fn read(path: &Path) -> Result<Self, AssetError> {
        let failed = |source| AssetError { path: path.to_owned(), source };
        let text = String::from_utf8(read_regular(path, MAX_DOCUMENT).map_err(failed)?).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
            failed(io::Error::new(io::ErrorKind::InvalidData, format!("line {line} is not UTF-8")))
        })?;
        Ok(Self { path: path.to_owned(), text, is_built_in: false })
    }
}

impl AssetFiles {
    /// Returns the embedded files only.
    pub const fn embedded() -> Self {
        Self { folder: None }
    }

    /// Returns the embedded files and the files of `folder/templates`, `folder/op_replay` and `folder/grids`, which
    /// replace embedded files of the same name. An error if the folder cannot be listed.
    pub fn overlaid(folder: &Path) -> Result<Self, AssetError> {
        fs::read_dir(folder).map_err(|source| AssetError { path: folder.to_owned(), source })?;
        Ok(Self { folder: Some(folder.to_owned()) })
    }

    /// Checks that the folder has an asset folder, and that nothing in it is ignored because of its name.
    pub(crate) fn check(&self) -> Result<(), YamlError> {
        const FOLDERS: [&str; 3] = ["templates", "op_replay", "grids"];
        let Some(folder) = &self.folder else { return Ok(()) };
        let wrong = |path: &Path, problem: &str, hint: String| Err(YamlError::of_file(path, problem, hint));
        let folders: Vec<PathBuf> = list_folder(folder)?.into_iter().filter(|path| path.is_dir()).collect();
        for path in &folders {
            let near = nearest_name(&name_of(path), FOLDERS).filter(|near| *near != name_of(path));
            if let Some(near) = near.filter(|near| !folder.join(near).exists()) {
                let problem = "is not a folder of assets and is not read";
                return wrong(path, problem, format!("did you mean `{near}`?"));
            }
        }
        if !folders.iter().any(|path| FOLDERS.contains(&&*name_of(path))) {
            let hint = format!("put the files into {}", FOLDERS.map(|name| format!("`{name}`")).join(", "));
            return wrong(folder, "has no folder of assets", hint);
        }
        for under in ["op_replay", "grids", "grids/models", "grids/devices"] {
            for path in list_folder(&folder.join(under))? {
                let name = name_of(&path);
                if let Some(stem) = name.strip_suffix(".yml") {
                    return wrong(&path, "only `*.yaml` is read", format!("rename it to `{stem}.yaml`"));
                }
                if name.ends_with(".yaml") && !path.is_file() {
                    let hint = "give a file of that name, or another name".to_owned();
                    return wrong(&path, "is neither a file nor a link to a file", hint);
                }
            }
        }
        Ok(())
    }

    /// Returns the text of a template, which must be embedded; panics if it is not.
    pub(crate) fn template(&self, name: &str) -> Result<String, AssetError> {
        let mut all = self.files("templates", &TEMPLATES, "")?;
        Ok(all.remove(name).map(|asset| asset.text).expect("names of templates are constants"))
    }

    pub(crate) fn catalogue(&self) -> Result<BTreeMap<String, AssetFile>, AssetError> {
        self.files("op_replay", &OP_REPLAY, ".yaml")
    }

    pub(crate) fn grids(&self) -> Result<BTreeMap<String, AssetFile>, AssetError> {
        self.files("grids", &GRIDS, ".yaml")
    }

    pub(crate) fn device_profiles(&self) -> Result<BTreeMap<String, AssetFile>, AssetError> {
        let devices = GRIDS.get_dir("devices").unwrap_or(&GRIDS);
        self.files("grids/devices", devices, ".yaml")
    }

    pub(crate) fn models(&self) -> Result<BTreeMap<String, AssetFile>, AssetError> {
        let models = GRIDS.get_dir("models").unwrap_or(&GRIDS);
        self.files("grids/models", models, ".yaml")
    }

    fn files(
        &self,
        under: &str,
        embedded: &Dir<'_>,
        suffix: &str,
    ) -> Result<BTreeMap<String, AssetFile>, AssetError> {
        let mut found = BTreeMap::new();
        for file in embedded.files() {
            let name = name_of(file.path());
            if let (true, Some(text)) = (name.ends_with(suffix), file.contents_utf8()) {
                let path = Path::new(BUILT_IN).join(under).join(&name);
                found.insert(name, AssetFile { path, text: text.to_owned(), is_built_in: true });
            }
        }
        let Some(folder) = &self.folder else { return Ok(found) };
        for path in list_folder(&folder.join(under))? {
            let name = name_of(&path);
            if name.ends_with(suffix) && path.is_file() {
                found.insert(name, AssetFile::read(&path)?);
            }
        }
        Ok(found)
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn list_folder(folder: &Path) -> Result<Vec<PathBuf>, AssetError> {
    entries(folder).map_err(|source| AssetError { path: folder.to_owned(), source })
}
