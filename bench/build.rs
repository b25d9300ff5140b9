//! Unpacks the traces for the program to include: their text is then part of the program's file.
//!
//! A workload that unpacked a trace would hold memory, and execute instructions, that no captured
//! process had (`src/trace.rs`).

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::read::GzDecoder;

/// The compressed files.
const FOLDER: &str = "traces";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={FOLDER}");
    let unpacked = PathBuf::from(env::var("OUT_DIR")?);
    for entry in fs::read_dir(FOLDER)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "gz") {
            unpack(&path, &unpacked).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// Unpacks a file to one of the same name, without the ending.
fn unpack(path: &Path, folder: &Path) -> io::Result<()> {
    let name = path.file_stem().unwrap_or_default();
    let mut text = File::create(folder.join(name))?;
    io::copy(&mut GzDecoder::new(File::open(path)?), &mut text)?;
    Ok(())
}
