//! The function at an address.
//!
//! # Problem
//! The kernel and its modules lie elsewhere in each boot, and so do the functions of a program's
//! file.
//!
//! # Approach
//! For the kernel `/proc/kallsyms` of that boot, for a program the symbol table of its file, with
//! the names of Rust made readable. The kernel does not list the lengths of functions: each ends
//! where the next one begins. A function that the compiler inlined counts as part of the other.

use anyhow::{Context, Result};
use object::{Object, ObjectSymbol, SymbolKind};

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FunctionSymbol {
    start: u64,
    /// Address behind its last byte, if it is known.
    end: Option<u64>,
    name: String,
    /// A module of the kernel, in brackets.
    module: Option<String>,
}

/// Functions by their addresses.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    functions: Vec<FunctionSymbol>,
}

/// The position of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SymbolMatch<'a> {
    /// The function's name.
    pub name: &'a str,
    /// The module of the kernel that it is in, in brackets.
    pub module: Option<&'a str>,
    /// Bytes from its start.
    pub offset: u64,
}

impl Symbols {
    /// Symbols of a kernel, from its list: `ADDRESS KIND NAME [MODULE]`, a line each.
    pub(super) fn of_kernel(list: &str) -> Result<Symbols> {
        let mut functions = Vec::new();
        for (number, line) in (1..).zip(list.lines()) {
            let mut words = line.split_ascii_whitespace();
            let address = words.next().map(|word| u64::from_str_radix(word, 16));
            let (Some(Ok(start)), Some(_), Some(name)) = (address, words.next(), words.next())
            else {
                anyhow::bail!("line {number}: no symbol '{line}'");
            };
            let module = words.next();
            functions.push(FunctionSymbol {
                start,
                end: None,
                name: name.to_owned(),
                module: module.map(str::to_owned),
            });
        }
        Ok(Symbols::sorted(functions))
    }

    /// Symbols of a program, from its file.
    pub(super) fn of_program(file: &[u8]) -> Result<Symbols> {
        let file = object::File::parse(file).context("no program")?;
        let functions = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
            .filter_map(|symbol| {
                let size = Some(symbol.size()).filter(|&size| size > 0);
                Some(FunctionSymbol {
                    start: symbol.address(),
                    end: size.map(|size| symbol.address() + size),
                    name: format!("{:#}", rustc_demangle::demangle(symbol.name().ok()?)),
                    module: None,
                })
            });
        Ok(Symbols::sorted(functions.collect()))
    }

    /// Among several names at one address the first of the alphabet counts.
    fn sorted(mut functions: Vec<FunctionSymbol>) -> Symbols {
        functions.sort_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
        functions.dedup_by_key(|function| function.start);
        Symbols { functions }
    }

    /// The function that an address is in; none if there is no name for it.
    pub(super) fn find(&self, address: u64) -> Option<SymbolMatch<'_>> {
        let behind = self
            .functions
            .partition_point(|function| function.start <= address);
        let function = &self.functions[behind.checked_sub(1)?];
        let is_within = function.end.is_none_or(|end| address < end);
        is_within.then(|| SymbolMatch {
            name: &function.name,
            module: function.module.as_deref(),
            offset: address - function.start,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_kernel_is_in_the_last_function_that_begins_before_it() {
        let list = "ffffffff81000100 t second\nffffffff81000000 T first\n\
                    ffffffff81000000 T __alias\nffffffffc0200000 t fold\t[uksm]\n";
        let symbols = Symbols::of_kernel(list).unwrap();
        let name = |address| {
            let found = symbols.find(address).unwrap();
            (found.name, found.module, found.offset)
        };
        assert_eq!(name(0xffff_ffff_8100_0000), ("__alias", None, 0));
        assert_eq!(name(0xffff_ffff_8100_00ff), ("__alias", None, 0xff));
        assert_eq!(name(0xffff_ffff_8100_0100), ("second", None, 0));
        assert_eq!(name(0xffff_ffff_c020_0010), ("fold", Some("[uksm]"), 0x10));
        assert_eq!(symbols.find(0x1000), None);
    }

    #[test]
    fn a_line_that_is_no_symbol_is_named() {
        let error = Symbols::of_kernel("ff t a\nnothing\n").unwrap_err();
        assert_eq!(error.to_string(), "line 2: no symbol 'nothing'");
    }

    #[test]
    fn functions_of_a_program_have_readable_names_and_an_end() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let symbols = Symbols::of_program(&own).unwrap();
        let find = |part: &str| {
            let mut all = symbols.functions.iter();
            all.find(|f| f.name.contains(part) && f.end.is_some())
        };
        let function = find("uksm_bench::").unwrap();
        assert!(!function.name.contains("17h"), "{}", function.name);
        let found = symbols.find(function.start + 1).unwrap();
        assert_eq!((found.name, found.offset), (&function.name[..], 1));
        assert!(Symbols::of_program(b"no ELF").is_err());
    }
}
