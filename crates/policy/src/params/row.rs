//! One row a parameter: from it come field, default, reading, printing, check and help.
//!
//! A row is a doc comment, a name, a type, a default and a [form](super::form). The first paragraph
//! of the comment is what help and manual say.

use std::fmt;

use super::form::Form;

/// A parameter as help and manual show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its name in files; options write `-` for `_`.
    pub name: &'static str,
    /// The kind of value it takes.
    pub unit: &'static str,
    /// Its value, as `set` reads it.
    pub value: String,
    /// What it must be; nothing if any text will do.
    pub bounds: String,
    /// What it does.
    pub doc: String,
    /// Whether its option may stand without a value.
    pub is_switch: bool,
}

/// A parameter that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamError {
    /// Its name.
    pub name: String,
    /// What was given.
    pub value: String,
    /// What it must be, as the end of a sentence: "must be 2 to 8".
    pub bounds: String,
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "parameter {} = {}: {}",
            self.name, self.value, self.bounds
        )
    }
}

impl std::error::Error for ParamError {}

/// Declares a structure of parameters, one row each:
///
/// ```
/// uksm_policy::parameters! {
///     /// What the tea is made by.
///     #[derive(Debug, PartialEq)]
///     pub struct Tea, made by sort(is_green: bool) {
///         /// How long it draws.
///         ///
///         /// This paragraph is in no help.
///         draw: u64 = if is_green { 60 } else { 180 }, uksm_policy::params::form::count(30..=600);
///     }
/// }
///
/// let mut tea = Tea::sort(true);
/// assert_eq!(tea.rows()[0].doc, "How long it draws");
/// tea.set("draw", "20").unwrap();
/// assert_eq!(tea.check_each().unwrap_err().to_string(), "parameter draw = 20: must be 30 to 600");
/// ```
///
/// `set` reads one value and checks its form only; `check_each` checks each value by itself, so
/// that values may be set in any order.
#[macro_export]
macro_rules! parameters {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Parameters:ident, made by $make:ident($($given:ident: $Given:ty)?) {
            $(
                $(#[doc = $doc:literal])+
                $name:ident: $type:ty = $default:expr, $form:expr;
            )+
        }
    ) => {
        $(#[$meta])*
        $vis struct $Parameters {
            $(
                $(#[doc = $doc])+
                #[doc = ""]
                #[doc = concat!(
                    "Default: `", stringify!($default), "`. Form: `", stringify!($form), "`."
                )]
                $vis $name: $type,
            )+
        }

        impl $Parameters {
            /// The names of all parameters, in their order: to know one takes no row.
            $vis const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];

            /// The defaults.
            #[must_use]
            $vis fn $make($($given: $Given)?) -> Self {
                Self { $($name: $default,)+ }
            }

            /// Every parameter with its value here.
            #[must_use]
            $vis fn rows(&self) -> Vec<$crate::params::row::Row> {
                vec![$(
                    $crate::params::row::row(
                        stringify!($name), &[$($doc),+], &self.$name, &$form
                    ),
                )+]
            }

            /// Name and value of each, as `set` reads it.
            #[must_use]
            $vis fn texts(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), $crate::params::row::text(&self.$name, &$form)),)+]
            }

            /// Sets one parameter from text, such as `20ms`, `10%`, `64MiB` or `off`. Checks its
            /// form only.
            ///
            /// # Errors
            /// No parameter of that name, or text that cannot be read.
            $vis fn set(
                &mut self,
                name: &str,
                text: &str,
            ) -> Result<(), $crate::params::ParamError> {
                match name {
                    $(stringify!($name) => {
                        self.$name = $crate::params::row::read(name, text, &$form)?;
                    })+
                    _ => return Err($crate::params::row::unknown(name, text, Self::NAMES)),
                }
                Ok(())
            }

            /// Checks each parameter by itself.
            ///
            /// # Errors
            /// The first that is out of bounds.
            $vis fn check_each(&self) -> Result<(), $crate::params::ParamError> {
                $($crate::params::row::check(stringify!($name), &self.$name, &$form)?;)+
                Ok(())
            }
        }
    };
}

/// A row as help shows it; [`parameters!`](crate::parameters) makes the calls.
pub fn row<F: Form>(name: &'static str, doc: &[&str], value: &F::Value, form: &F) -> Row {
    Row {
        name,
        unit: form.unit(),
        value: form.show(value),
        bounds: form.bounds(),
        doc: crate::doc::first_paragraph(doc),
        is_switch: form.is_switch(),
    }
}

/// A value as `set` reads it; [`parameters!`](crate::parameters) makes the calls.
pub fn text<F: Form>(value: &F::Value, form: &F) -> String {
    form.show(value)
}

/// Reads one value; [`parameters!`](crate::parameters) makes the calls.
///
/// # Errors
/// The text is not of this form.
pub fn read<F: Form>(name: &str, text: &str, form: &F) -> Result<F::Value, ParamError> {
    let text = text.trim();
    form.read(text)
        .ok_or_else(|| refused(name, text, &form.bounds()))
}

/// Checks one value; [`parameters!`](crate::parameters) makes the calls.
///
/// # Errors
/// The value is out of bounds.
pub fn check<F: Form>(name: &str, value: &F::Value, form: &F) -> Result<(), ParamError> {
    if form.accepts(value) {
        return Ok(());
    }
    Err(refused(name, &form.show(value), &form.bounds()))
}

/// The refusal of a value that is not of its form or out of its bounds.
pub(super) fn refused(name: &str, value: &str, bounds: &str) -> ParamError {
    ParamError {
        name: name.to_owned(),
        value: value.to_owned(),
        bounds: format!("must be {bounds}"),
    }
}

/// The refusal of a name; [`parameters!`](crate::parameters) makes the calls.
#[must_use]
pub fn unknown(name: &str, value: &str, known: &[&str]) -> ParamError {
    ParamError {
        name: name.to_owned(),
        value: value.to_owned(),
        bounds: format!("no such parameter; there are {}", known.join(", ")),
    }
}
