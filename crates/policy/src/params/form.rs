//! Forms of values: how a parameter is written, read, printed and bounded.
//!
//! Each form holds its bounds. What a form says of its bounds is at once the help, the manual and
//! the refusal, so that they cannot differ.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::text;
use crate::command::Nanos;

/// How values of one kind are written, and which of them are accepted.
pub trait Form {
    /// The values.
    type Value;

    /// The kind of value in one word; help shows it in place of the value.
    fn unit(&self) -> &'static str;

    /// What is accepted, as the end of "must be ...".
    fn bounds(&self) -> String;

    /// The value that a text names; `None` if it names none.
    fn read(&self, text: &str) -> Option<Self::Value>;

    /// A value as [`Form::read`] reads it.
    fn show(&self, value: &Self::Value) -> String;

    /// Whether a value is within the bounds.
    fn accepts(&self, value: &Self::Value) -> bool;

    /// Whether the option may stand without a value, and then means `true`.
    fn is_switch(&self) -> bool {
        false
    }

    /// The same form with a remark behind its bounds. The remark tells what is checked elsewhere,
    /// such as a contradiction to another parameter.
    fn and(self, remark: &'static str) -> RemarkedForm<Self>
    where
        Self: Sized,
    {
        RemarkedForm { form: self, remark }
    }
}

/// See [`Form::and`].
#[derive(Debug, Clone)]
pub struct RemarkedForm<F> {
    form: F,
    remark: &'static str,
}

impl<F: Form> Form for RemarkedForm<F> {
    type Value = F::Value;

    fn unit(&self) -> &'static str {
        self.form.unit()
    }

    fn bounds(&self) -> String {
        format!("{}, {}", self.form.bounds(), self.remark)
    }

    fn read(&self, text: &str) -> Option<F::Value> {
        self.form.read(text)
    }

    fn show(&self, value: &F::Value) -> String {
        self.form.show(value)
    }

    fn accepts(&self, value: &F::Value) -> bool {
        self.form.accepts(value)
    }

    fn is_switch(&self) -> bool {
        self.form.is_switch()
    }
}

/// A share, written `10%` or `0.1`. See [`share`].
#[derive(Debug, Clone)]
pub struct Share(RangeInclusive<f64>);

/// A share from 0 to 1 within these bounds.
#[must_use]
pub fn share(bounds: RangeInclusive<f64>) -> Share {
    Share(bounds)
}

impl Form for Share {
    type Value = f64;

    fn unit(&self) -> &'static str {
        "share"
    }

    fn bounds(&self) -> String {
        let (low, high) = (*self.0.start(), *self.0.end());
        format!("{} to {}", text::percent(low), text::percent(high))
    }

    fn read(&self, text: &str) -> Option<f64> {
        text::parse_share(text)
    }

    fn show(&self, value: &f64) -> String {
        text::percent(*value)
    }

    fn accepts(&self, value: &f64) -> bool {
        self.0.contains(value)
    }
}

/// A length of time, written `20ms`, `1.5s` or `1h`. See [`time`].
#[derive(Debug, Clone)]
pub struct Time(RangeInclusive<Nanos>);

/// A length of time within these bounds.
#[must_use]
pub fn time(bounds: RangeInclusive<Nanos>) -> Time {
    Time(bounds)
}

impl Form for Time {
    type Value = Nanos;

    fn unit(&self) -> &'static str {
        "time"
    }

    fn bounds(&self) -> String {
        let high = text::duration(*self.0.end());
        match *self.0.start() {
            0 => format!("up to {high}"),
            low => format!("{} to {high}", text::duration(low)),
        }
    }

    fn read(&self, text: &str) -> Option<Nanos> {
        text::parse_duration(text)
    }

    fn show(&self, value: &Nanos) -> String {
        text::duration(*value)
    }

    fn accepts(&self, value: &Nanos) -> bool {
        self.0.contains(value)
    }
}

/// A number of bytes, written `64MiB` or `4096`. See [`size`].
#[derive(Debug, Clone)]
pub struct Size<T> {
    bounds: RangeInclusive<T>,
    power_of_two: bool,
}

/// A number of bytes within these bounds.
#[must_use]
pub fn size<T>(bounds: RangeInclusive<T>) -> Size<T> {
    Size {
        bounds,
        power_of_two: false,
    }
}

impl<T> Size<T> {
    /// The same, and a power of two.
    #[must_use]
    pub fn power_of_two(self) -> Size<T> {
        Size {
            power_of_two: true,
            ..self
        }
    }
}

impl<T: Copy + PartialOrd + TryFrom<u64> + TryInto<u64>> Form for Size<T> {
    type Value = T;

    fn unit(&self) -> &'static str {
        "size"
    }

    fn bounds(&self) -> String {
        let (low, high) = (self.show(self.bounds.start()), self.show(self.bounds.end()));
        let power = if self.power_of_two {
            ", a power of two"
        } else {
            ""
        };
        format!("{low} to {high}{power}")
    }

    fn read(&self, text: &str) -> Option<T> {
        T::try_from(text::parse_size(text)?).ok()
    }

    fn show(&self, value: &T) -> String {
        text::size(whole(*value))
    }

    fn accepts(&self, value: &T) -> bool {
        self.bounds.contains(value) && (!self.power_of_two || whole(*value).is_power_of_two())
    }
}

/// A whole number. See [`count`].
#[derive(Debug, Clone)]
pub struct Count<T> {
    unit: &'static str,
    bounds: RangeInclusive<T>,
}

/// A whole number within these bounds.
#[must_use]
pub fn count<T>(bounds: RangeInclusive<T>) -> Count<T> {
    Count {
        unit: "number",
        bounds,
    }
}

impl<T> Count<T> {
    /// The same, as a number of these.
    #[must_use]
    pub fn of(self, unit: &'static str) -> Count<T> {
        Count { unit, ..self }
    }
}

impl<T: Copy + PartialOrd + fmt::Display + FromStr + TryInto<u64>> Form for Count<T> {
    type Value = T;

    fn unit(&self) -> &'static str {
        self.unit
    }

    fn bounds(&self) -> String {
        let (low, high) = (whole(*self.bounds.start()), whole(*self.bounds.end()));
        format!("{} to {}", text::count(low), text::count(high))
    }

    fn read(&self, text: &str) -> Option<T> {
        text.parse().ok()
    }

    fn show(&self, value: &T) -> String {
        value.to_string()
    }

    fn accepts(&self, value: &T) -> bool {
        self.bounds.contains(value)
    }
}

/// One of some words. See [`choice`].
#[derive(Debug, Clone)]
pub struct Choice<T, const N: usize> {
    unit: &'static str,
    words: [(&'static str, T); N],
}

/// One of these words, each with the value it stands for.
#[must_use]
pub fn choice<T, const N: usize>(
    unit: &'static str,
    words: [(&'static str, T); N],
) -> Choice<T, N> {
    Choice { unit, words }
}

impl<T: Copy + PartialEq, const N: usize> Form for Choice<T, N> {
    type Value = T;

    fn unit(&self) -> &'static str {
        self.unit
    }

    fn bounds(&self) -> String {
        let words = self.words.map(|(word, _)| word);
        match words.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} or {last}", others.join(", "))
            }
            _ => words.concat(),
        }
    }

    fn read(&self, text: &str) -> Option<T> {
        let (_, value) = self.words.iter().find(|(word, _)| *word == text)?;
        Some(*value)
    }

    fn show(&self, value: &T) -> String {
        let word = self.words.iter().find(|(_, known)| known == value);
        word.map_or_else(String::new, |(word, _)| (*word).to_owned())
    }

    fn accepts(&self, value: &T) -> bool {
        self.words.iter().any(|(_, known)| known == value)
    }
}

/// `true` or `false`. See [`switch`].
#[derive(Debug, Clone)]
pub struct Switch;

/// On or off.
#[must_use]
pub fn switch() -> Switch {
    Switch
}

impl Form for Switch {
    type Value = bool;

    fn unit(&self) -> &'static str {
        "word"
    }

    fn bounds(&self) -> String {
        "true or false".to_owned()
    }

    fn read(&self, text: &str) -> Option<bool> {
        text.parse().ok()
    }

    fn show(&self, value: &bool) -> String {
        value.to_string()
    }

    fn accepts(&self, _: &bool) -> bool {
        true
    }

    fn is_switch(&self) -> bool {
        true
    }
}

/// A value, or a word for none. See [`optional`].
#[derive(Debug, Clone)]
pub struct Optional<F> {
    word: &'static str,
    form: F,
}

/// A value of a form, or this word, which stands for `None`.
#[must_use]
pub fn optional<F: Form>(word: &'static str, form: F) -> Optional<F> {
    Optional { word, form }
}

impl<F: Form> Form for Optional<F> {
    type Value = Option<F::Value>;

    fn unit(&self) -> &'static str {
        self.form.unit()
    }

    fn bounds(&self) -> String {
        format!("{}, or {}", self.word, self.form.bounds())
    }

    fn read(&self, text: &str) -> Option<Self::Value> {
        if text == self.word {
            return Some(None);
        }
        self.form.read(text).map(Some)
    }

    fn show(&self, value: &Self::Value) -> String {
        match value {
            None => self.word.to_owned(),
            Some(value) => self.form.show(value),
        }
    }

    fn accepts(&self, value: &Self::Value) -> bool {
        value.as_ref().is_none_or(|value| self.form.accepts(value))
    }
}

/// A length of time that is turned off by a word. See [`time_or_off`].
#[derive(Debug, Clone)]
pub struct TimeOrOff(Time);

/// A length of time up to `longest`; `off` stands for 0.
#[must_use]
pub fn time_or_off(longest: Nanos) -> TimeOrOff {
    TimeOrOff(time(0..=longest))
}

impl Form for TimeOrOff {
    type Value = Nanos;

    fn unit(&self) -> &'static str {
        self.0.unit()
    }

    fn bounds(&self) -> String {
        format!("off, or {}", self.0.bounds())
    }

    fn read(&self, text: &str) -> Option<Nanos> {
        if text == "off" {
            return Some(0);
        }
        self.0.read(text)
    }

    fn show(&self, value: &Nanos) -> String {
        match *value {
            0 => "off".to_owned(),
            ref value => self.0.show(value),
        }
    }

    fn accepts(&self, value: &Nanos) -> bool {
        self.0.accepts(value)
    }
}

/// One value for each level. See [`each_level`].
#[derive(Debug, Clone)]
pub struct EachLevel<F> {
    unit: &'static str,
    form: F,
}

/// A list of values of a form, separated by commas: one for each level, bottom first.
#[must_use]
pub fn each_level<F: Form>(unit: &'static str, form: F) -> EachLevel<F> {
    EachLevel { unit, form }
}

impl<F: Form> Form for EachLevel<F> {
    type Value = Vec<F::Value>;

    fn unit(&self) -> &'static str {
        self.unit
    }

    fn bounds(&self) -> String {
        format!("{} a level, separated by commas", self.form.bounds())
    }

    fn read(&self, text: &str) -> Option<Self::Value> {
        text.split(',')
            .map(|item| self.form.read(item.trim()))
            .collect()
    }

    fn show(&self, value: &Self::Value) -> String {
        let items: Vec<String> = value.iter().map(|item| self.form.show(item)).collect();
        items.join(",")
    }

    fn accepts(&self, value: &Self::Value) -> bool {
        value.iter().all(|item| self.form.accepts(item))
    }
}

/// A bound or a value as the number it is; no type of a parameter is wider.
fn whole<T: TryInto<u64>>(value: T) -> u64 {
    value.try_into().unwrap_or(u64::MAX)
}
