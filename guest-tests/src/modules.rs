//! Loading and unloading kernel modules.
//!
//! Problem: some kernels have as a module what others have built in, and a test that needs a
//! missing module must fail with a message.
//!
//! Approach: the harness resolved names, files and dependencies when it packed the initramfs and
//! wrote them into the plan; here they are only followed.

use std::ffi::CString;
use std::fs::{self, File};
use std::path::Path;

use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};

use uksm_vm_protocol::machine::MODULE;
use uksm_vm_protocol::messages::{MODULE_DIR, ModuleFile};

/// Why a module could not be loaded or unloaded.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// The initramfs does not have it.
    #[error("module {0} is not in the initramfs: name it when the machine is made")]
    Unknown(String),
    /// Its file cannot be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The kernel refuses to load it.
    #[error("loading module {module}: {errno} ({hint})")]
    Load {
        /// The module.
        module: String,
        /// The system's error.
        errno: Errno,
        /// The last line of the kernel's log.
        hint: String,
    },
    /// The kernel refuses to unload it.
    #[error("unloading module {module}: {errno}")]
    Unload {
        /// The module.
        module: String,
        /// The system's error.
        errno: Errno,
    },
}

/// The modules of this guest.
#[derive(Debug, Clone)]
pub(crate) struct Modules {
    files: Vec<ModuleFile>,
}

impl Modules {
    /// The modules that the plan lists.
    #[must_use]
    pub(crate) fn new(files: Vec<ModuleFile>) -> Self {
        Self { files }
    }

    fn find(&self, name: &str) -> Result<&ModuleFile, ModuleError> {
        self.files
            .iter()
            .find(|file| file.name == name)
            .ok_or_else(|| ModuleError::Unknown(name.to_owned()))
    }

    /// Whether a module is in the initramfs or built in.
    #[must_use]
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// Loads a module and its dependencies, without parameters.
    ///
    /// # Errors
    /// It is unknown, unreadable, or refused.
    pub(crate) fn load(&self, name: &str) -> Result<(), ModuleError> {
        // A kernel is in the list of tried ones only after these tests have passed on it.
        let parameters = if name == MODULE { "untested=1" } else { "" };
        self.load_with(name, parameters)
    }

    /// Loads a module and its dependencies.
    ///
    /// # Errors
    /// It is unknown, unreadable, or refused.
    pub(crate) fn load_with(&self, name: &str, parameters: &str) -> Result<(), ModuleError> {
        let module = self.find(name)?;
        for needed in &module.needs {
            self.load(needed)?;
        }
        let Some(file) = &module.file else {
            return Ok(());
        };
        let path = Path::new(MODULE_DIR).join(file);
        let opened = File::open(&path).map_err(|source| ModuleError::File {
            path: path.display().to_string(),
            source,
        })?;
        let parameters = CString::new(parameters).unwrap_or_default();
        match finit_module(&opened, &parameters, ModuleInitFlags::empty()) {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(ModuleError::Load {
                module: name.to_owned(),
                errno,
                hint: last_log_line(),
            }),
        }
    }
}

/// Whether a module is in `/proc/modules` now.
#[must_use]
pub(crate) fn is_loaded(name: &str) -> bool {
    fs::read_to_string("/proc/modules").is_ok_and(|text| {
        text.lines()
            .any(|line| line.split_whitespace().next() == Some(name))
    })
}

/// Unloads one module; its dependencies stay.
///
/// # Errors
/// The kernel refuses: in use, or not loaded.
pub(crate) fn unload(name: &str) -> Result<(), ModuleError> {
    let name_c = CString::new(name).unwrap_or_default();
    delete_module(&name_c, DeleteModuleFlags::O_NONBLOCK).map_err(|errno| ModuleError::Unload {
        module: name.to_owned(),
        errno,
    })
}

fn last_log_line() -> String {
    crate::kmsg::since(None)
        .ok()
        .and_then(|records| records.last().map(|r| r.text.clone()))
        .unwrap_or_else(|| "the kernel's log is empty".to_owned())
}
