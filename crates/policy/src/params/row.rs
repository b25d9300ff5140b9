//! The table of parameters: names, units, defaults, bounds, meanings.
//!
//! Problem: command line, configuration and documentation need one list. Approach: this one; a test
//! proves that it names every field of `Params` and its default. Units: as each row says. Source:
//! UKSM Table 1.

/// What there is to know about one parameter; `default` is that of governor full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamSpec {
    /// Its name on the command line and in the configuration.
    pub name: &'static str,
    /// The form of its value.
    pub unit: &'static str,
    /// Its default, in that form.
    pub default: &'static str,
    /// What it may be.
    pub bounds: &'static str,
    /// What it does.
    pub doc: &'static str,
}

const fn spec(
    name: &'static str,
    unit: &'static str,
    default: &'static str,
    bounds: &'static str,
    doc: &'static str,
) -> ParamSpec {
    ParamSpec {
        name,
        unit,
        default,
        bounds,
        doc,
    }
}

/// Every parameter, in the order of [`Params`]' fields.
pub const TABLE: [ParamSpec; 19] = [
    spec(
        "cpu",
        "share",
        "95%",
        "0.2% to 95%",
        "share of one core the top level may use",
    ),
    spec(
        "bottom_cpu",
        "share",
        "0.2%",
        "0.01% to cpu",
        "share of one core the bottom level may use",
    ),
    spec(
        "levels",
        "number",
        "4",
        "2 to 8",
        "levels of the ladder (N)",
    ),
    spec(
        "round",
        "time",
        "2s",
        "1ms to 1h",
        "length of a global sampling round (t)",
    ),
    spec(
        "level_rounds",
        "times",
        "even",
        "even, or 1ms to 1h a level",
        "round time of each level, bottom first (t_l)",
    ),
    spec(
        "level_shares",
        "shares",
        "halving",
        "halving, or bottom_cpu to cpu, rising",
        "CPU share of each level, bottom first (p_l)",
    ),
    spec(
        "sleep",
        "time",
        "20ms",
        "1ms to 10s",
        "sleep of a sleep-scan cycle (T_s)",
    ),
    spec(
        "v_dup",
        "share",
        "10%",
        "0.1% to 100%",
        "regions with a higher share of duplicates are promoted (V_dup)",
    ),
    spec(
        "v_cow",
        "share",
        "50%",
        "off, or 0.1% to 100%",
        "regions with a higher share of broken pages are demoted (V_cow)",
    ),
    spec(
        "v_life",
        "time",
        "100ms",
        "off, or up to 1h",
        "regions younger than this are left alone (V_life)",
    ),
    spec(
        "strength",
        "lines",
        "auto",
        "auto, or 1 to 64",
        "cache lines of a page that are hashed",
    ),
    spec(
        "index_bytes",
        "size",
        "64MiB",
        "64KiB to 1TiB",
        "memory for the index of unmerged pages",
    ),
    spec(
        "thp",
        "word",
        "profit",
        "never or profit",
        "whether huge pages are split",
    ),
    spec(
        "thp_share",
        "share",
        "25%",
        "0% to 100%",
        "share of a huge page's pages that must have partners before it is split",
    ),
    spec(
        "locked",
        "word",
        "false",
        "true or false",
        "merge mlocked pages, too",
    ),
    spec(
        "region_bytes",
        "size",
        "64MiB",
        "2MiB to 1TiB, a power of two",
        "large mappings are cut into regions of this size",
    ),
    spec(
        "max_regions",
        "number",
        "524288",
        "64 to 16777216",
        "most regions to follow; what is beyond is left out, and `status` says how much",
    ),
    spec(
        "max_process_regions",
        "number",
        "65536",
        "64 to 16777216",
        "most regions of one process to follow",
    ),
    spec(
        "max_sharers",
        "number",
        "256",
        "2 to 256",
        "most mappings of one frame",
    ),
];
