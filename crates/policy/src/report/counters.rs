//! Reports that describe themselves: each counter is one row.
//!
//! From the row come the field, its name in JSON, its text in help and manual, and, if it has a
//! phrase, its text in the printed status. The end of a name is the unit: `_seconds`, `_share`
//! (part of one core), `_bytes`, `_pages`; anything else is a plain number.

/// A field of a report as help and manual show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name in JSON.
    pub name: &'static str,
    /// What it counts.
    pub doc: String,
}

/// A value of a report as it is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Its name in JSON.
    pub name: &'static str,
    /// The value with its unit.
    pub value: String,
    /// The words behind the value, where it is printed in a sentence.
    pub phrase: Option<&'static str>,
}

/// A number of things: `1 process`, `2 processes`.
#[must_use]
pub fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// A report made by [`counters!`](crate::counters).
pub trait Counters {
    /// What the report is about.
    fn about() -> String;

    /// Its fields, in the order of the rows.
    fn fields() -> Vec<Field>;

    /// Its values, in the order of the rows.
    fn cells(&self) -> Vec<Cell>;

    /// The values that have a phrase, in one sentence.
    fn sentence(&self) -> String {
        let cells = self.cells().into_iter();
        let phrases: Vec<String> = cells
            .filter_map(|cell| Some(format!("{} {}", cell.value, cell.phrase?)))
            .collect();
        phrases.join(", ")
    }
}

/// A list is described by its items and is printed elsewhere.
impl<T: Counters> Counters for Vec<T> {
    fn about() -> String {
        T::about()
    }

    fn fields() -> Vec<Field> {
        T::fields()
    }

    fn cells(&self) -> Vec<Cell> {
        Vec::new()
    }
}

/// A value that can be printed.
pub trait Figure {
    /// The value with the unit of its name; `None` if it is printed elsewhere.
    fn text(&self, name: &str) -> Option<String>;
}

macro_rules! whole_figures {
    ($($type:ty),+) => {$(
        impl Figure for $type {
            fn text(&self, name: &str) -> Option<String> {
                Some(if name.ends_with("_bytes") {
                    format!("{:.1} MiB", crate::convert::float(u64::from(*self)) / f64::from(1 << 20))
                } else {
                    self.to_string()
                })
            }
        }
    )+};
}

whole_figures!(u16, u32, u64);

impl Figure for i64 {
    fn text(&self, _: &str) -> Option<String> {
        Some(self.to_string())
    }
}

impl Figure for f64 {
    fn text(&self, name: &str) -> Option<String> {
        Some(if name.ends_with("_seconds") {
            format!("{self:.2} s")
        } else if name.ends_with("share") {
            format!("{:.2} %", self * 100.0)
        } else {
            format!("{self:.1}")
        })
    }
}

impl Figure for bool {
    fn text(&self, _: &str) -> Option<String> {
        Some(self.to_string())
    }
}

impl Figure for String {
    fn text(&self, _: &str) -> Option<String> {
        Some(self.clone())
    }
}

impl<T> Figure for Vec<T> {
    fn text(&self, _: &str) -> Option<String> {
        None
    }
}

/// A count that may be unknown is printed in words of its own.
impl<T> Figure for Option<T> {
    fn text(&self, _: &str) -> Option<String> {
        None
    }
}

/// Declares reports, one row a counter:
///
/// ```
/// use uksm_policy::report::Counters as _;
///
/// uksm_policy::counters! {
///     /// What the oven does.
///     pub struct Oven {
///         /// Loaves baked; of a single one a sentence says `1 loaf`.
///         ///
///         /// This paragraph is in no help.
///         baked: u64 = "loaves" or "loaf",
///         /// Loaves burnt; a sentence leaves it out if there are none.
///         burnt: u64 = "burnt" unless "0",
///         /// Time in use.
///         used_seconds: f64,
///     }
/// }
///
/// let oven = Oven { baked: 3, burnt: 0, used_seconds: 1.5 };
/// assert_eq!(oven.sentence(), "3 loaves");
/// assert_eq!(Oven { baked: 1, ..oven }.sentence(), "1 loaf");
/// assert_eq!(Oven::fields()[1].doc, "Loaves burnt; a sentence leaves it out if there are none");
/// ```
///
/// A block `with { name: Report, }` behind the rows takes over the rows of other reports.
#[macro_export]
macro_rules! counters {
    ($(
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        $vis:vis struct $Report:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($serde:ident)])?
                $name:ident: $type:ty $(= $phrase:literal $(or $one:literal)? $(unless $hidden:literal)?)?,
            )*
        }
        $(with {
            $(
                $(#[doc = $part_doc:literal])+
                $part:ident: $Part:ty,
            )+
        })?
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Default, ::serde::Serialize, ::serde::Deserialize)]
        $(#[derive($($derive),+)])?
        $vis struct $Report {
            $(
                $(#[doc = $doc])+
                $(#[serde($serde)])?
                $vis $name: $type,
            )*
            $($(
                $(#[doc = $part_doc])+
                #[serde(flatten)]
                $vis $part: $Part,
            )+)?
        }

        impl $crate::report::Counters for $Report {
            fn about() -> String {
                $crate::report::counters::text(&[$($about),+])
            }

            fn fields() -> Vec<$crate::report::Field> {
                [
                    vec![$($crate::report::Field {
                        name: stringify!($name),
                        doc: $crate::report::counters::text(&[$($doc),+]),
                    },)*],
                    $($(<$Part as $crate::report::Counters>::fields(),)+)?
                ]
                .concat()
            }

            fn cells(&self) -> Vec<$crate::report::Cell> {
                let own: Vec<Option<$crate::report::Cell>> = vec![$(
                    $crate::report::counters::cell(
                        stringify!($name),
                        &self.$name,
                        $crate::report::counters::Phrase {
                            words: [$($phrase)?].first().copied(),
                            one: [$($($one)?)?].first().copied(),
                            hidden: [$($($hidden)?)?].first().copied(),
                        },
                    ),
                )*];
                let own: Vec<$crate::report::Cell> = own.into_iter().flatten().collect();
                [
                    own,
                    $($($crate::report::Counters::cells(&self.$part),)+)?
                ]
                .concat()
            }
        }
    )+};
}

/// How a row is printed in a sentence; [`counters!`](crate::counters) makes it.
#[derive(Debug, Clone, Copy)]
pub struct Phrase {
    /// The words behind the value.
    pub words: Option<&'static str>,
    /// The words behind 1, if they differ.
    pub one: Option<&'static str>,
    /// The value that a sentence leaves out.
    pub hidden: Option<&'static str>,
}

/// The text of a doc comment; [`counters!`](crate::counters) makes the calls.
#[must_use]
pub fn text(doc: &[&str]) -> String {
    crate::doc::first_paragraph(doc)
}

/// A value as it is printed; [`counters!`](crate::counters) makes the calls.
pub fn cell(name: &'static str, figure: &impl Figure, phrase: Phrase) -> Option<Cell> {
    let value = figure.text(name)?;
    let is_hidden = phrase.hidden == Some(value.as_str());
    let one = phrase.one.filter(|_| value == "1");
    let words = one.or(phrase.words);
    Some(Cell {
        name,
        value,
        phrase: words.filter(|_| !is_hidden),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::counters! {
        /// A part.
        struct Part {
            /// Of memory.
            kept_bytes: u64 = "kept",
        }

        /// A whole: its own rows
        /// and those of a part.
        ///
        /// No help.
        struct Whole {
            /// Of a core.
            recent_share: f64 = "lately",
            /// None yet.
            late: u64 = "late" unless "0",
            /// Found again and again.
            finds: u64 = "finds" or "find" unless "0",
            /// A list.
            names: Vec<String>,
        }
        with {
            /// The part.
            part: Part,
        }
    }

    fn whole() -> Whole {
        Whole {
            recent_share: 0.5,
            part: Part {
                kept_bytes: 1 << 20,
            },
            ..Whole::default()
        }
    }

    #[test]
    fn rows_of_a_part_follow_and_are_described() {
        let names: Vec<_> = Whole::fields().iter().map(|field| field.name).collect();
        assert_eq!(
            names,
            ["recent_share", "late", "finds", "names", "kept_bytes"]
        );
        assert_eq!(Whole::about(), "A whole: its own rows and those of a part");
        assert_eq!(Whole::fields()[4].doc, "Of memory");
    }

    #[test]
    fn a_sentence_has_units_and_no_hidden_value() {
        let mut whole = whole();
        assert_eq!(whole.sentence(), "50.00 % lately, 1.0 MiB kept");
        whole.late = 2;
        assert_eq!(whole.sentence(), "50.00 % lately, 2 late, 1.0 MiB kept");
        (whole.late, whole.finds) = (0, 1);
        assert_eq!(whole.sentence(), "50.00 % lately, 1 find, 1.0 MiB kept");
        whole.finds = 11;
        assert_eq!(whole.sentence(), "50.00 % lately, 11 finds, 1.0 MiB kept");
    }
}
