//! Pages and times in units for people.

/// Pages in MiB.
pub(super) fn mib(pages: f64) -> String {
    format!("{:.1}", pages / 256.0)
}

/// A time as text.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        ..0.1 => format!("{:.0} ms", seconds * 1e3),
        ..100.0 => format!("{seconds:.1} s"),
        ..6000.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}
