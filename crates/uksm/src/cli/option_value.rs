//! The value of an option, read by the form of a setting.

use uksm_policy::params::form::Form;

/// What a text says in this form.
///
/// # Errors
/// It says none that is accepted.
pub(super) fn accepted<F: Form>(form: &F, text: &str) -> Result<F::Value, String> {
    let value = form.read(text).filter(|value| form.accepts(value));
    value.ok_or_else(|| format!("must be {}", form.bounds()))
}
