//! The state of this host that checks judge, read once.

use std::path::Path;

use uksm_linux::proc::Proc;

use super::probe::Root;
use super::sources::Sources;

pub(in crate::doctor) mod configuration;
pub(in crate::doctor) mod guard;
pub(in crate::doctor) mod kernel;
pub(in crate::doctor) mod machines;
pub(in crate::doctor) mod memory;
pub(in crate::doctor) mod mergeable;
pub(in crate::doctor) mod module_state;
pub(in crate::doctor) mod processes;
pub(in crate::doctor) mod rights;
pub(in crate::doctor) mod service;
pub(in crate::doctor) mod vendor;

/// The state of this host.
pub(crate) struct Host {
    pub(in crate::doctor) kernel: kernel::HostKernel,
    pub(in crate::doctor) vendor: vendor::HostVendor,
    pub(in crate::doctor) module: module_state::ModuleState,
    pub(in crate::doctor) guard: guard::GuardState,
    pub(in crate::doctor) rights: rights::Rights,
    pub(in crate::doctor) memory: memory::HostMemory,
    pub(in crate::doctor) processes: processes::HostProcesses,
    pub(in crate::doctor) mappings: mergeable::MappingTreatment,
    pub(in crate::doctor) configuration: configuration::HostConfiguration,
    pub(in crate::doctor) service: service::Service,
}

impl Host {
    /// Reads all that checks need.
    pub(in crate::doctor) fn read(
        root: &Root,
        config: Option<&Path>,
        sources: &Sources<'_>,
    ) -> Host {
        let kernel = kernel::HostKernel::read(root);
        let configuration = configuration::HostConfiguration::read(root, config, sources);
        let device = root.at(&configuration.device());
        let proc = Proc::at(&root.at(Path::new("/proc")));
        let mut processes = processes::HostProcesses::read(root, &proc);
        configuration.mark_targets(&proc, &mut processes.all);
        Host {
            vendor: vendor::HostVendor::read(root, kernel.release.text()),
            module: module_state::ModuleState::read(
                root,
                kernel.release.there(),
                (sources.device)(&device),
            ),
            guard: guard::GuardState::read(root),
            rights: rights::Rights::read(root),
            memory: memory::HostMemory::read(root),
            mappings: mergeable::MappingTreatment::read(root, (sources.mappings_apart)()),
            service: service::Service::read(root, &configuration),
            processes,
            kernel,
            configuration,
        }
    }
}
