//! A GPU as a resource.

use super::node::vendor;
use super::{Absence, Absences, Clock, ConnectionState, GpuReadings, Timestamp, text, value};
use nodeglass_protocol::field::ValueKind;
use nodeglass_protocol::gpu::NvLink;
use nodeglass_protocol::picture::{Evidence, GpuFacts, GpuHealth, GpuPicture, NodePicture};
use nodeglass_protocol::process::ProcessGap;
use nodeglass_protocol::unattributed::MIN_BYTES;
use nodeglass_protocol::{GpuField, JobId, Reading};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A GPU or MIG instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gpu {
    /// UUID, its identity.
    pub uuid: String,
    /// Its node.
    pub node: String,
    /// Index of its driver on the node.
    pub index: u32,
    /// Label on the node: `GPU 0`, `AMD 0`.
    pub label: String,
    /// N of `/dev/nvidiaN`, which SLURM's GRES indices refer to.
    pub minor: Option<u32>,
    /// Vendor: `nvidia`, `amd`, `intel`, `tpu`, or `unknown`.
    pub vendor: String,
    /// Model.
    pub name: Option<String>,
    /// PCI address: `00000000:07:00.0`.
    pub pci: Option<String>,
    /// Architecture: `Hopper`.
    pub architecture: Option<String>,
    /// CUDA compute capability: `9.0`.
    pub compute_capability: Option<String>,
    /// Nearest NUMA node.
    pub numa_node: Option<u32>,
    /// Serial number.
    pub serial: Option<String>,
    /// Version of the VBIOS.
    pub vbios: Option<String>,
    /// Compute mode.
    pub compute_mode: Option<String>,
    /// Whether the driver stays loaded without clients.
    pub persistence_mode: Option<bool>,
    /// Whether ECC is enabled.
    pub ecc_mode: Option<bool>,
    /// Whether it is divided into MIG instances.
    pub mig_mode: Option<bool>,
    /// The instance, if it is one.
    pub mig: Option<Mig>,
    /// Whether its memory is the host's.
    pub unified_memory: bool,
    /// Limits of its readings.
    pub limits: Limits,
    /// Jobs that it belongs to.
    pub jobs: Vec<GpuJob>,
    /// Whether a job may have it of which SLURM does not state the GPUs on this node.
    #[serde(default)]
    pub may_have_job: bool,
    /// Number of processes on it, including processes that are not listed; `null` if they could not be read.
    pub processes: Option<u32>,
    /// Reason why the number of processes is unknown.
    pub processes_absent: Option<Absence>,
    /// State of the connection to the probe of its node.
    pub connection: ConnectionState,
    /// Time of the newest sample.
    pub sampled_at: Option<Timestamp>,
    /// Reason why it cannot be read.
    pub fault: Option<String>,
    /// Health.
    pub health: Health,
    /// Readings.
    pub readings: GpuReadings,
    /// Reasons for readings without a value.
    pub absent: Absences,
}

/// A MIG instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Mig {
    /// UUID of its GPU.
    pub parent: Option<String>,
    /// GPU instance id.
    pub gpu_instance: Option<u32>,
    /// Compute instance id.
    pub compute_instance: Option<u32>,
    /// Profile: `3g.40gb`.
    pub profile: Option<String>,
}

/// Limits of the readings of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    /// Temperature at which it slows down, in °C.
    pub temp_slowdown_c: Option<u32>,
    /// Temperature at which it shuts down, in °C.
    pub temp_shutdown_c: Option<u32>,
    /// Maximum SM clock in MHz.
    pub sm_clock_max_mhz: Option<u32>,
    /// Maximum memory clock in MHz.
    pub mem_clock_max_mhz: Option<u32>,
    /// Default power limit in W.
    pub power_default_w: Option<u32>,
    /// Maximum power limit in W.
    pub power_max_w: Option<u32>,
    /// Maximum PCIe generation.
    pub pcie_gen_max: Option<u32>,
    /// Maximum PCIe link width in lanes.
    pub pcie_width_max: Option<u32>,
}

/// A job that a GPU belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuJob {
    /// Numeric job id.
    pub job: u32,
    /// Evidence: `gres_index`, `process`, `whole_node`, `device_cgroup` or `visible_devices`.
    pub evidence: String,
}

/// Defines a part of the health of a GPU, a row per property: its reading in [`GpuHealth`], or how it follows from that,
/// and its metric for Prometheus, if it has one: name, kind and help.
macro_rules! health {
    (
        $(#[$of_struct:meta])*
        $name:ident {
            $($(#[$of_field:meta])* $field:ident: $type:ty = $reading:ident
                $(, metric $metric:literal, $kind:ident, $help:literal)?;)*
            $(@ $(#[$of_rest:meta])* $rest:ident: $rest_type:ty = $make:expr;)*
        }
    ) => {
        $(#[$of_struct])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
        pub struct $name {
            $($(#[$of_field])* pub $field: Option<$type>,)*
            $($(#[$of_rest])* pub $rest: $rest_type,)*
        }

        impl $name {
            pub(crate) const METRICS: &[Metric<Self>] = &[$($(Metric {
                name: $metric,
                help: $help,
                kind: ValueKind::$kind,
                value: |health| health.$field.map(u64::from),
            },)?)*];

            fn new(health: &GpuHealth) -> Self {
                Self { $($field: value(&health.$reading),)* $($rest: $make(health),)* }
            }
        }
    };
}

/// A metric of the health of a GPU.
pub(crate) struct Metric<T> {
    /// Its name. Counters that dcgm-exporter names against Prometheus' conventions have ours.
    pub name: &'static str,
    /// Its help.
    pub help: &'static str,
    /// Its kind.
    pub kind: ValueKind,
    /// Its value, if it is known.
    pub value: fn(&T) -> Option<u64>,
}

health! {
    /// Health of a GPU.
    Health {
        /// Lifetime corrected ECC errors.
        ecc_corrected: u64 = ecc_life_corrected;
        /// Lifetime uncorrected ECC errors.
        ecc_uncorrected: u64 = ecc_life_uncorrected;
        /// Pages retired for corrected errors.
        retired_corrected: u64 = retired_corrected;
        /// Pages retired for uncorrected errors.
        retired_uncorrected: u64 = retired_uncorrected;
        /// Whether page retirements are pending a reboot.
        retired_pending: bool = retired_pending;
        /// Rows remapped for corrected errors.
        remapped_corrected: u64 = remapped_corrected,
            metric "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", Gauge, "Rows remapped for correctable errors.";
        /// Rows remapped for uncorrected errors.
        remapped_uncorrected: u64 = remapped_uncorrected,
            metric "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", Gauge, "Rows remapped for uncorrectable errors.";
        /// Whether a row remapping is pending a reset.
        remap_pending: bool = remap_pending,
            metric "DCGM_FI_DEV_ROW_REMAP_PENDING", Gauge, "Whether a remapping is pending a reset.";
        /// Whether a row remapping failed.
        remap_failed: bool = remap_failed,
            metric "DCGM_FI_DEV_ROW_REMAP_FAILURE", Gauge, "Whether remapping of rows has failed.";
        @
        /// PCIe link.
        pcie: PcieLink = PcieLink::new;
        @
        /// NVLinks, by number.
        nvlinks: Vec<Link> = |health: &GpuHealth| health.nvlinks.iter().map(Link::new).collect();
    }
}

health! {
    /// Current PCIe link of a GPU.
    PcieLink {
        /// Generation.
        generation: u64 = pcie_gen, metric "DCGM_FI_DEV_PCIE_LINK_GEN", Gauge, "Current PCIe generation.";
        /// Width in lanes.
        width: u64 = pcie_width, metric "DCGM_FI_DEV_PCIE_LINK_WIDTH", Gauge, "Current PCIe link width in lanes.";
        /// Replays since the driver was loaded.
        replays: u64 = pcie_replays,
            metric "nodeglass_gpu_pcie_replays_total", Counter, "PCIe replays since the driver was loaded.";
    }
}

impl Health {
    /// Returns the number of NVLinks that are up, or down; `None` if the state of none is known.
    pub(crate) fn nvlinks(&self, up: bool) -> Option<u64> {
        let known = self.nvlinks.iter().filter_map(|link| link.up);
        let (count, matching) =
            known.fold((0_u64, 0), |(all, matching), is_up| (all + 1, matching + u64::from(is_up == up)));
        (count > 0).then_some(matching)
    }
}

/// One NVLink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// Number on this GPU.
    pub link: u32,
    /// Whether it is up.
    pub up: Option<bool>,
    /// Remote end.
    pub remote: Option<String>,
    /// Data received, in MiB/s.
    pub rx_mib_s: Option<u64>,
    /// Data sent, in MiB/s.
    pub tx_mib_s: Option<u64>,
    /// Errors since the driver was loaded.
    pub errors: Option<u64>,
}

impl Gpu {
    /// `has_unlocated_job` states whether it is unknown which GPUs of the node some job has.
    pub(super) fn new(node: &NodePicture, gpu: &GpuPicture, has_unlocated_job: bool, clock: Clock) -> Self {
        let facts = &gpu.facts;
        let processes = processes(node, gpu);
        Self {
            uuid: facts.uuid.to_string(),
            node: node.name.to_string(),
            index: facts.index,
            label: facts.label(),
            minor: value(&facts.minor),
            vendor: vendor(facts.vendor).to_owned(),
            name: text(&facts.name),
            pci: text(&facts.pci),
            architecture: text(&facts.architecture),
            compute_capability: text(&facts.compute_capability),
            numa_node: value(&facts.numa_node),
            serial: text(&facts.serial),
            vbios: text(&facts.vbios),
            compute_mode: text(&facts.compute_mode),
            persistence_mode: value(&facts.persistence),
            ecc_mode: value(&facts.ecc_mode),
            mig_mode: value(&facts.mig_mode),
            mig: mig(facts),
            unified_memory: facts.unified_memory,
            limits: Limits::new(facts),
            jobs: gpu.owners.iter().map(|owner| GpuJob::new(owner.job, owner.by)).collect(),
            may_have_job: has_unlocated_job && gpu.owners.is_empty(),
            processes: processes.ok(),
            processes_absent: processes.err(),
            connection: ConnectionState::of(&node.head.link),
            sampled_at: node.sampled_at_ms.map(|at_ms| clock.timestamp(at_ms)),
            fault: gpu.fault.as_ref().map(ToString::to_string),
            health: Health::new(&gpu.health),
            readings: GpuReadings::new(&gpu.row),
            absent: Absences::new(&gpu.row),
        }
    }

    /// Returns whether it is known to be free: [unused](Self::is_unused), and of no job.
    pub fn is_free(&self) -> bool {
        self.jobs.is_empty() && !self.may_have_job && self.is_unused()
    }

    /// Returns whether it is known that nothing uses it: its node sends what is due, it has no processes and no memory in use,
    /// and it is not divided into instances. A job may have it nevertheless.
    pub fn is_unused(&self) -> bool {
        // Unified memory is the host's.
        let is_memory_known = self.unified_memory || self.readings.value(GpuField::MemUsed).is_some();
        self.connection == ConnectionState::Live
            && self.fault.is_none()
            && self.processes == Some(0)
            && is_memory_known
            && !self.has_unknown_holder()
            && !self.is_divided()
    }

    /// Returns whether memory is in use that no listed process holds: another user's or container's, or left behind by a crash.
    /// Unlike `mem_unattributed_bytes`, it does not wait until that has lasted.
    pub fn has_unknown_holder(&self) -> bool {
        let is_used = self.readings.value(GpuField::MemUsed).is_some_and(|bytes| bytes >= MIN_BYTES);
        let lasts = self.readings.value(GpuField::MemUnattributed).is_some_and(|bytes| bytes > 0);
        lasts || self.processes == Some(0) && is_used && !self.unified_memory && !self.is_divided()
    }

    /// Returns whether it is divided into MIG instances, which are GPUs of their own.
    pub fn is_divided(&self) -> bool {
        self.mig.is_none() && self.mig_mode == Some(true)
    }
}

/// The number of processes on a GPU, or why it is not known.
fn processes(node: &NodePicture, gpu: &GpuPicture) -> Result<u32, Absence> {
    let listed = node.processes.iter().filter(|process| process.facts.gpu == gpu.facts.uuid).count();
    let listed = u32::try_from(listed).unwrap_or(u32::MAX);
    node.process_gaps(gpu).try_fold(listed, |count, gap| match gap {
        ProcessGap::Unsupported => Err(Absence::Unsupported),
        ProcessGap::Failed(_) => Err(Absence::Failed),
        ProcessGap::More(more) => Ok(count.saturating_add(*more)),
    })
}

fn mig(facts: &GpuFacts) -> Option<Mig> {
    let ids = facts.mig.as_ref();
    (ids.is_some() || facts.mig_parent.is_some()).then(|| Mig {
        parent: facts.mig_parent.as_ref().map(ToString::to_string),
        gpu_instance: ids.map(|ids| ids.gpu_instance),
        compute_instance: ids.map(|ids| ids.compute_instance),
        profile: ids.and_then(|ids| ids.profile.as_ref()).map(ToString::to_string),
    })
}

impl Limits {
    fn new(facts: &GpuFacts) -> Self {
        let watts = |reading: &Reading<u32>| value(reading).map(|mw| mw / 1_000);
        Self {
            temp_slowdown_c: value(&facts.temp_slowdown_c),
            temp_shutdown_c: value(&facts.temp_shutdown_c),
            sm_clock_max_mhz: value(&facts.sm_clock_max_mhz),
            mem_clock_max_mhz: value(&facts.mem_clock_max_mhz),
            power_default_w: watts(&facts.power_default_mw),
            power_max_w: watts(&facts.power_max_mw),
            pcie_gen_max: value(&facts.pcie_gen_max),
            pcie_width_max: value(&facts.pcie_width_max),
        }
    }
}

impl GpuJob {
    fn new(job: JobId, by: Evidence) -> Self {
        let evidence = match by {
            Evidence::GresIndex => "gres_index",
            Evidence::Process => "process",
            Evidence::WholeNode => "whole_node",
            Evidence::DeviceCgroup => "device_cgroup",
            Evidence::VisibleDevices => "visible_devices",
        };
        Self { job: job.0, evidence: evidence.to_owned() }
    }
}

impl Link {
    fn new(link: &NvLink) -> Self {
        Self {
            link: link.link,
            up: value(&link.up),
            remote: text(&link.remote),
            rx_mib_s: value(&link.rx_mib_s),
            tx_mib_s: value(&link.tx_mib_s),
            errors: value(&link.errors),
        }
    }
}
