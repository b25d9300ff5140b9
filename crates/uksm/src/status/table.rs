//! A table as text: columns as wide as their widest cell, the first one flush left, numbers flush
//! right.

use std::fmt;

/// Writes rows, of which the first is the head.
pub(crate) fn write<const COLUMNS: usize>(
    f: &mut fmt::Formatter<'_>,
    rows: &[[String; COLUMNS]],
) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max();
    let widths: Vec<usize> = (0..COLUMNS).filter_map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        writeln!(f, "{}", cells.collect::<Vec<_>>().join("  "))?;
    }
    Ok(())
}
