//! Handlebars templates in strict mode: a name that a template uses and the context lacks is an error.

use handlebars::{Handlebars, html_escape, no_escape};
use serde::Serialize;

use crate::base::assets::{AssetError, AssetFiles};
use crate::base::command_error::Failure;

#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The template is wrong, or uses a name that it does not have.
    #[error("template `{template}`: {message}")]
    Template {
        template: &'static str,
        /// Line, column and the missing name.
        message: String,
    },
    /// The template's file cannot be read.
    #[error(transparent)]
    Assets(#[from] AssetError),
}

impl Failure for RenderError {
    fn hint(&self) -> String {
        "the template comes from the folder given with `--assets`; compare it with the built-in one"
            .to_owned()
    }
}

/// Renders a script or a manifest: values are inserted as they are.
pub(crate) fn render_template(
    assets: &AssetFiles,
    template: &'static str,
    context: &impl Serialize,
) -> Result<String, RenderError> {
    render(assets, template, &[], context, no_escape)
}

/// Renders a page in the frame that all pages have: values are escaped for HTML.
pub(crate) fn render_page(
    assets: &AssetFiles,
    template: &'static str,
    context: &impl Serialize,
) -> Result<String, RenderError> {
    render(assets, template, &[("page", "page.html.hbs")], context, html_escape)
}

/// Renders a template with partials by name and file.
fn render(
    assets: &AssetFiles,
    template: &'static str,
    partials: &[(&str, &str)],
    context: &impl Serialize,
    escape: fn(&str) -> String,
) -> Result<String, RenderError> {
    let mut handlebars = Handlebars::new();
    handlebars.set_strict_mode(true);
    handlebars.register_escape_fn(escape);
    let failed = |message: String| RenderError::Template { template, message };
    for &(name, file) in [(template, template)].iter().chain(partials) {
        let text = assets.template(file)?;
        handlebars.register_template_string(name, text).map_err(|error| failed(error.to_string()))?;
    }
    handlebars.render(template, context).map_err(|error| failed(error.to_string()))
}
