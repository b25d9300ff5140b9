//! Makes the Rust side of the contract from `uksm_ioctl.h`.
//!
//! bindgen reads the header with libclang and writes the structures and the enums, with the
//! header's comments. It also reports every name that it meets. From these names this program
//! writes what bindgen does not: the constants in the types that Rust callers want, the way from
//! a number to an enum's value, and the list of calls. All names go to a second file, for the
//! test that compares them with the header.

use std::cell::RefCell;
use std::env;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;

use bindgen::callbacks::{
    DeriveInfo, EnumVariantValue, FieldInfo, IntKind, ItemInfo, MacroParsingBehavior,
    ParseCallbacks, TypeKind,
};
use bindgen::{CodegenConfig, FieldVisibilityKind, Formatter};

const HEADER: &str = "uksm_ioctl.h";

/// A name with the names below it, each with something of its own.
type Groups<T> = Vec<(String, Vec<(String, T)>)>;

/// The names of the header, in its order.
#[derive(Debug, Default)]
struct Names {
    /// Macros that are numbers.
    constants: Vec<(String, u64)>,
    /// Enums and the numbers of their values.
    enums: Groups<u64>,
    /// Structures and their fields.
    structures: Groups<()>,
}

/// Puts an entry into its group, once.
fn put<T>(groups: &mut Groups<T>, group: &str, name: &str, value: T) {
    let at = groups.iter().position(|(known, _)| known == group);
    let at = at.unwrap_or_else(|| {
        groups.push((group.to_owned(), Vec::new()));
        groups.len() - 1
    });
    let entries = &mut groups[at].1;
    if entries.iter().all(|(known, _)| known != name) {
        entries.push((name.to_owned(), value));
    }
}

/// Tells bindgen the Rust names and notes what it meets.
#[derive(Debug, Default, Clone)]
struct Reader {
    /// The enums, known beforehand: bindgen asks for a type's name without saying what it is.
    enums: Vec<String>,
    names: Rc<RefCell<Names>>,
}

impl ParseCallbacks for Reader {
    fn will_parse_macro(&self, name: &str) -> MacroParsingBehavior {
        if name.starts_with("UKSM_") {
            MacroParsingBehavior::Default
        } else {
            MacroParsingBehavior::Ignore
        }
    }

    fn int_macro(&self, name: &str, value: i64) -> Option<IntKind> {
        let value = u64::try_from(value).unwrap_or_else(|_| panic!("{name}: {value} is negative"));
        self.names
            .borrow_mut()
            .constants
            .push((name.to_owned(), value));
        None
    }

    fn enum_variant_name(
        &self,
        of: Option<&str>,
        name: &str,
        value: EnumVariantValue,
    ) -> Option<String> {
        let of = of?.trim_start_matches("enum ");
        let EnumVariantValue::Unsigned(value) = value else {
            panic!("{name}: {value:?} cannot travel in an unsigned field");
        };
        put(&mut self.names.borrow_mut().enums, of, name, value);
        Some(variant(of, name))
    }

    fn field_visibility(&self, field: FieldInfo<'_>) -> Option<FieldVisibilityKind> {
        let structures = &mut self.names.borrow_mut().structures;
        put(structures, field.type_name, field.field_name, ());
        None
    }

    fn item_name(&self, item: ItemInfo<'_>) -> Option<String> {
        let is_enum = self.enums.iter().any(|name| name == item.name);
        is_enum.then(|| type_name(item.name))
    }

    fn add_derives(&self, info: &DeriveInfo<'_>) -> Vec<String> {
        match info.kind {
            TypeKind::Enum => vec!["PartialOrd".into(), "Ord".into()],
            _ => Vec::new(),
        }
    }

    fn process_comment(&self, comment: &str) -> Option<String> {
        // Rust would take `uksm_run[nr_runs]` for a link.
        Some(comment.replace('\t', "    ").replace('[', "\\["))
    }
}

/// `no_frame` or `NO_FRAME` becomes `NoFrame`.
fn camel(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + &rest.to_lowercase()
    };
    name.split('_').map(word).collect()
}

/// `uksm_state` becomes `State`. Structures keep their names in C.
fn type_name(of: &str) -> String {
    camel(of.trim_start_matches("uksm_"))
}

/// `UKSM_STATE_ANON` of `uksm_state` becomes `Anon`.
fn variant(of: &str, name: &str) -> String {
    let prefix = of.to_uppercase() + "_";
    let rest = name.strip_prefix(&prefix);
    camel(rest.unwrap_or_else(|| panic!("{name}: its name does not begin with {prefix}")))
}

/// The type in which Rust uses a constant: that of the field or length it is compared with.
fn constant_type(name: &str) -> &'static str {
    match name {
        "UKSM_PAGE_SIZE" | "UKSM_LINE_SIZE" | "UKSM_BREAK_MARGIN" => "u64",
        "UKSM_MAX_SHARERS" | "UKSM_MAX_LEAST_SPACES" => "u32",
        "UKSM_LOCK_BATCH" => "usize",
        _ if name.starts_with("UKSM_MAX_") => "usize",
        _ if name.starts_with("UKSM_PAGE_") => "u16",
        _ => "u32",
    }
}

/// Whether a constant is a bit of `uksm_page.flags`.
fn is_page_flag(name: &str) -> bool {
    name.starts_with("UKSM_PAGE_") && name != "UKSM_PAGE_SIZE" && name != "UKSM_PAGE_LINES"
}

/// The constants, and the page flags once more under their Rust names.
fn write_constants(out: &mut String, names: &Names) -> fmt::Result {
    for (name, value) in &names.constants {
        let kind = constant_type(name);
        writeln!(out, "pub const {name}: {kind} = {value};")?;
    }
    writeln!(out, "impl PageFlags {{")?;
    for (name, _) in names
        .constants
        .iter()
        .filter(|(name, _)| is_page_flag(name))
    {
        let flag = name.trim_start_matches("UKSM_PAGE_");
        writeln!(out, "pub const {flag}: u16 = {name};")?;
    }
    writeln!(out, "}}")
}

/// The way from the number of a field to the value of its enum.
fn write_conversions(out: &mut String, names: &Names) -> fmt::Result {
    for (of, values) in &names.enums {
        let kind = type_name(of);
        writeln!(
            out,
            "impl {kind} {{
             /// The value with this number; none if the header has none.
             #[must_use]
             pub const fn from_number(number: u16) -> Option<Self> {{ match number {{"
        )?;
        for (name, value) in values {
            writeln!(out, "{value} => Some(Self::{}),", variant(of, name))?;
        }
        writeln!(out, "_ => None, }} }} }}")?;
    }
    Ok(())
}

/// The calls, and what they take.
fn write_calls(out: &mut String, names: &Names) -> fmt::Result {
    let calls = names.constants.iter().filter_map(|(constant, _)| {
        let name = constant.strip_prefix("UKSM_IOC_")?;
        Some((name, camel(name), constant))
    });
    let calls: Vec<_> = calls.collect();
    let mut list = |head: &str, row: &dyn Fn(&str, &str, &str) -> String, tail: &str| {
        let rows: String = calls.iter().map(|(n, v, c)| row(n, v, c)).collect();
        writeln!(out, "{head} {rows} {tail}")
    };
    list(
        "/// A call of the contract.
         #[derive(Debug, Clone, Copy, PartialEq, Eq)]
         pub enum Verb {",
        &|_, verb, _| format!("{verb},"),
        "}",
    )?;
    list(
        "impl Verb {
         /// Every call, in the order of the header.
         pub const ALL: &[Verb] = &[",
        &|_, verb, _| format!("Verb::{verb},"),
        "];",
    )?;
    list(
        "/// The name that the header gives it, as `ATTACH`.
         #[must_use]
         pub const fn name(self) -> &'static str { match self {",
        &|name, verb, _| format!("Verb::{verb} => {name:?},"),
        "} }",
    )?;
    list(
        "/// The number by which ioctl(2) knows it.
         #[must_use]
         pub const fn request(self) -> u32 { match self {",
        &|_, verb, constant| format!("Verb::{verb} => {constant},"),
        "} } }",
    )?;
    for (structure, verb) in requests(names) {
        writeln!(
            out,
            "impl Request for {structure} {{ const VERB: Verb = Verb::{verb}; }}"
        )?;
    }
    Ok(())
}

/// The structures that calls take: `UKSM_IOC_ATTACH` takes a `struct uksm_attach`.
fn requests(names: &Names) -> impl Iterator<Item = (&str, String)> {
    names.structures.iter().filter_map(|(structure, _)| {
        let name = structure.strip_prefix("uksm_")?;
        let constant = "UKSM_IOC_".to_owned() + &name.to_uppercase();
        let is_call = names.constants.iter().any(|(known, _)| *known == constant);
        is_call.then(|| (structure.as_str(), camel(name)))
    })
}

/// Every name of the header, for the test `contract`.
fn write_tables(out: &mut String, names: &Names) -> fmt::Result {
    writeln!(out, "const LAYOUTS: &[Layout] = &[")?;
    for (structure, fields) in &names.structures {
        let fields: Vec<&str> = fields.iter().map(|(field, ())| field.as_str()).collect();
        writeln!(out, "layout!({structure}: {}),", fields.join(", "))?;
    }
    writeln!(out, "];\nconst REQUESTS: &[(Verb, usize)] = &[")?;
    for (structure, _) in requests(names) {
        writeln!(out, "({structure}::VERB, size_of::<{structure}>()),")?;
    }
    writeln!(out, "];\nconst CONSTANTS: &[(&str, u64)] = &[")?;
    for (name, _) in &names.constants {
        let cast = match constant_type(name) {
            "u64" => "",
            _ => " as u64",
        };
        writeln!(out, "({name:?}, {name}{cast}),")?;
    }
    for (of, values) in &names.enums {
        for (name, _) in values {
            let value = format!("{}::{}", type_name(of), variant(of, name));
            writeln!(out, "({name:?}, {value} as u64),")?;
        }
    }
    writeln!(out, "];")
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let header = fs::read_to_string(HEADER).unwrap_or_else(|error| panic!("{HEADER}: {error}"));
    let enums = header.lines().filter_map(|line| {
        let name = line.strip_prefix("enum ")?;
        Some(name.strip_suffix(" {")?.to_owned())
    });
    let reader = Reader {
        enums: enums.collect(),
        ..Reader::default()
    };
    let bindings = bindgen::builder()
        .header(HEADER)
        // The header's comments are the documentation. Values travel in fields of 8 and 16 bits,
        // so Rust needs no wider enums; no structure has a field of an enum's type.
        .clang_args(["-fparse-all-comments", "-fshort-enums"])
        // bindgen alone cannot read _IOWR(..., struct ...); clang evaluates it.
        .clang_macro_fallback()
        .clang_macro_fallback_build_dir(&folder)
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .parse_callbacks(Box::new(reader.clone()))
        .with_codegen_config(CodegenConfig::TYPES)
        .allowlist_type("uksm_.*")
        .rustified_enum("uksm_.*")
        .derive_default(true)
        .derive_eq(true)
        .disable_header_comment()
        .formatter(Formatter::None)
        .generate()
        .unwrap_or_else(|error| panic!("{HEADER}: {error}"));

    let names = reader.names.borrow();
    let mut contract = bindings.to_string();
    let mut tables = String::new();
    write_constants(&mut contract, &names)
        .and_then(|()| write_conversions(&mut contract, &names))
        .and_then(|()| write_calls(&mut contract, &names))
        .and_then(|()| write_tables(&mut tables, &names))
        .expect("a string takes all");
    for (file, text) in [("contract.rs", contract), ("tables.rs", tables)] {
        let path = folder.join(file);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
