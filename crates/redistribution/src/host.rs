//! The state of the host for the guard: available memory, and pressure.
//!
//! # Problem
//! The guard needs the state each second, at next to no cost, and must not take an unreadable file
//! for a calm host.
//!
//! # Approach
//! Two small files of `/proc`, read by the crate procfs-core, and one number of `/proc/vmstat`.
//! Without PSI in the kernel there is no pressure, which is no error; anything else that cannot be
//! read is one. The root is a path, so that a test can use a folder.
//!
//! # Units
//! PSI has percent and microseconds; results are bytes, shares and [`Nanos`](crate::Nanos).
//!
//! # Source
//! proc(5), kernel documentation `accounting/psi.rst`.

use std::io::ErrorKind;
use std::path::Path;

use procfs_core::{FromBufRead as _, Meminfo, MemoryPressure, PressureRecord, ProcError};

use crate::actuator::Error;
use crate::guard::{Observation, Pressure, Waiting};
use crate::targets::PAGE;

/// The error of opening a PSI file where PSI is turned off.
const NOT_SUPPORTED: i32 = 95;

/// Reads the state of the host.
///
/// # Errors
/// A file cannot be read, or has unexpected contents.
pub(crate) fn observe(proc_root: &Path) -> Result<Observation, Error> {
    let path = proc_root.join("meminfo");
    let text = std::fs::read(&path).map_err(|error| Error::file(&path, error))?;
    let seen = Meminfo::from_buf_read(&text[..]).map_err(|error| wrong(&path, &error))?;
    let available = seen.mem_available;
    Ok(Observation {
        total: seen.mem_total,
        available: available.ok_or_else(|| Error::wrong(&path, "no MemAvailable"))?,
        pressure: pressure(&proc_root.join("pressure/memory"))?,
        copied: copied(&proc_root.join("vmstat"))?,
    })
}

/// Bytes of merged pages that were written, since the host started; none where the kernel does not
/// count them (before 5.19, or without KSM). Copies that uksm makes itself are among them.
fn copied(path: &Path) -> Result<Option<u64>, Error> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::file(path, error)),
    };
    let pages = uksm_input::copies::counted(&text)
        .map_err(|_| Error::wrong(path, "cow_ksm is no number"))?;
    Ok(pages.map(|pages| pages.saturating_mul(PAGE)))
}

/// None where the kernel does not report it.
pub(crate) fn pressure(path: &Path) -> Result<Option<Pressure>, Error> {
    pressure_of(std::fs::read(path), path)
}

/// Pressure from the text that was read from this file.
pub(crate) fn pressure_of(
    read: std::io::Result<Vec<u8>>,
    path: &Path,
) -> Result<Option<Pressure>, Error> {
    let text = match read {
        Ok(text) => text,
        Err(error)
            if error.kind() == ErrorKind::NotFound
                || error.raw_os_error() == Some(NOT_SUPPORTED) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(Error::file(path, error)),
    };
    let seen = MemoryPressure::from_buf_read(&text[..]).map_err(|error| wrong(path, &error))?;
    Ok(Some(Pressure {
        some: waiting(&seen.some),
        full: waiting(&seen.full),
    }))
}

fn waiting(record: &PressureRecord) -> Waiting {
    Waiting {
        recent: f64::from(record.avg10) / 100.0,
        total: record.total.saturating_mul(1000),
    }
}

fn wrong(path: &Path, error: &ProcError) -> Error {
    Error::wrong(path, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PSI: &str = "some avg10=1.50 avg60=0.50 avg300=0.10 total=123\n\
                       full avg10=0.25 avg60=0.00 avg300=0.00 total=7\n";

    fn host(meminfo: &str, psi: Option<&str>) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("meminfo"), meminfo).unwrap();
        if let Some(psi) = psi {
            std::fs::create_dir(root.path().join("pressure")).unwrap();
            std::fs::write(root.path().join("pressure/memory"), psi).unwrap();
        }
        root
    }

    const MEMINFO: &str = include_str!("host/meminfo");

    #[test]
    fn both_files_are_read() {
        let root = host(MEMINFO, Some(PSI));
        let waiting = |recent, total| Waiting { recent, total };
        assert_eq!(
            observe(root.path()).unwrap(),
            Observation {
                total: 252_064 << 10,
                available: 210_508 << 10,
                pressure: Some(Pressure {
                    some: waiting(0.015, 123_000),
                    full: waiting(0.0025, 7_000),
                }),
                copied: None,
            }
        );
        let events = |text: &str| {
            std::fs::write(root.path().join("vmstat"), text).unwrap();
            observe(root.path())
        };
        assert_eq!(events("pgfault 3\n").unwrap().copied, None);
        assert_eq!(
            events("pgfault 3\ncow_ksm 5\n").unwrap().copied,
            Some(5 * 4096)
        );
        let error = events("cow_ksm x\n").unwrap_err().to_string();
        assert!(error.contains("/vmstat: cow_ksm is no number"), "{error}");
    }

    #[test]
    fn a_kernel_without_psi_is_no_error_and_a_strange_file_is_one_that_names_it() {
        assert_eq!(observe(host(MEMINFO, None).path()).unwrap().pressure, None);
        let unavailable = MEMINFO.replace("MemAvailable:", "MemOther:");
        for (meminfo, psi, expected) in [
            (unavailable.as_str(), PSI, "/meminfo: no MemAvailable"),
            ("MemTotal: 1 kB\n", PSI, "/meminfo: "),
            (MEMINFO, "some avg10=1\n", "/pressure/memory: "),
            (MEMINFO, "", "/pressure/memory: "),
        ] {
            let error = observe(host(meminfo, Some(psi)).path()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn this_host_is_read() {
        let seen = observe(Path::new("/proc")).unwrap();
        assert!(
            seen.total > seen.available && seen.available > 0,
            "{seen:?}"
        );
    }
}
