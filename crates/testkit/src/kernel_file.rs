//! Small files of proc, sys and cgroup: numbers and settings.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// The error of a call, with the path of its file.
pub(crate) fn at_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn text(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(|error| at_path(path, &error))
}

fn without(path: &Path, missing: &str) -> io::Error {
    let message = format!("{}: no {missing}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// The numbers in lines "name value …" or "name: value …", by name.
fn parse_numbers(text: &str) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        let (name, rest) = line.split_once([':', ' ', '\t'])?;
        let value = rest.split_whitespace().next()?.parse().ok()?;
        Some((name.to_owned(), value))
    };
    text.lines().filter_map(pair).collect()
}

/// The numbers of a file of lines "name value …" or "name: value …", by name.
///
/// # Errors
/// It cannot be read.
pub fn numbers(path: impl AsRef<Path>) -> io::Result<BTreeMap<String, u64>> {
    Ok(parse_numbers(&text(path.as_ref())?))
}

/// One number of such a file.
///
/// # Errors
/// The file cannot be read, or has no such line.
pub fn number(path: impl AsRef<Path>, name: &str) -> io::Result<u64> {
    let path = path.as_ref();
    let number = numbers(path)?.get(name).copied();
    number.ok_or_else(|| without(path, name))
}

/// The number that is the whole content of a file.
///
/// # Errors
/// The file cannot be read, or holds something else.
pub fn value(path: impl AsRef<Path>) -> io::Result<u64> {
    let path = path.as_ref();
    let text = text(path)?;
    let number = text.trim().parse();
    number.map_err(|_| without(path, &format!("number but {text:?}")))
}

/// Writes a setting.
///
/// # Errors
/// The kernel refuses it.
pub fn write(path: impl AsRef<Path>, value: &str) -> io::Result<()> {
    let path = path.as_ref();
    let written = fs::write(path, value);
    written.map_err(|error| {
        let message = format!("{}: cannot write {value:?}: {error}", path.display());
        io::Error::new(error.kind(), message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_its_whole_name() {
        let text = "MemTotal:        2048 kB\nMem:   1024 kB\nusage_usec 7\nName:\tbash\n";
        let numbers = parse_numbers(text);
        assert_eq!((numbers["Mem"], numbers["MemTotal"]), (1024, 2048));
        assert_eq!(numbers["usage_usec"], 7);
        assert_eq!(numbers.len(), 3);
        assert!(number("/proc/meminfo", "MemAvailable").unwrap() > 0);
    }

    #[test]
    fn an_error_names_the_file() {
        let missing = number("/proc/meminfo", "Mem").unwrap_err();
        assert_eq!(missing.to_string(), "/proc/meminfo: no Mem");
        let absent = value("/proc/absent").unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        assert!(absent.to_string().starts_with("/proc/absent: "), "{absent}");
        assert!(value("/proc/self/comm").is_err());
    }
}
