//! The virtio ports to the harness.
//!
//! Problem: events must reach the harness even if the console is full of kernel messages, and must
//! not be mixed with output of programs.
//!
//! Approach: each port has a name, found in sysfs; the verdict port is opened once by `/init` and
//! shared with the test children by fork. An event is one `write`, so that lines of two processes
//! cannot interleave.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uksm_vm_protocol::messages::Event;

/// Longest time until a port appears.
const APPEARANCE: Duration = Duration::from_secs(20);

/// Opens the port with this name.
///
/// # Errors
/// There is no such port, or it cannot be opened.
pub(crate) fn open(name: &str) -> io::Result<File> {
    let device = await_port(name)?;
    // The port is read for answers of the harness.
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(&device)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", device.display())))
}

/// If the driver is a module, ports appear some time after it was loaded.
fn await_port(name: &str) -> io::Result<PathBuf> {
    let end = Instant::now() + APPEARANCE;
    loop {
        match find(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(10));
            }
            found => return found,
        }
    }
}

fn find(name: &str) -> io::Result<PathBuf> {
    for entry in fs::read_dir("/sys/class/virtio-ports")? {
        let entry = entry?;
        let port = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if port.trim_end() == name {
            return Ok(PathBuf::from("/dev").join(entry.file_name()));
        }
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!("no virtio port is named {name}"),
    ))
}

/// Sends events to the harness.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    port: Arc<File>,
}

impl Reporter {
    /// Reports through this port.
    #[must_use]
    pub(crate) fn new(port: File) -> Self {
        Self {
            port: Arc::new(port),
        }
    }

    /// Sends one event. An error cannot be reported anywhere but to the
    /// console; the harness will miss the verdict and call the machine lost.
    pub(crate) fn send(&self, event: &Event) {
        let mut line = match serde_json::to_string(event) {
            Ok(line) => line,
            Err(e) => {
                eprintln!("uksm-guest: an event cannot be encoded: {e}");
                return;
            }
        };
        line.push('\n');
        if let Err(e) = (&*self.port).write_all(line.as_bytes()) {
            eprintln!("uksm-guest: the verdict port is broken: {e}");
        }
    }
}
