//! Formats quantities with as many decimals as matter: alone, or in the column of a table.

use crate::text;

/// How all numbers of a column are written: with as many decimals as its largest one deserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnFormat {
    decimals: usize,
}

impl ColumnFormat {
    /// Returns the format of a column of these numbers.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let decimals = match numbers.into_iter().fold(0.0, f64::max) {
            0.0 => 0,
            ..9.995 => 2,
            ..999.95 => 1,
            _ => 0,
        };
        Self { decimals }
    }

    /// Formats a number of the column, negative ones as zero; one that would round to zero is not written as zero.
    pub fn write(self, number: f64) -> String {
        // Not −0, which is written with its sign.
        let number = if number > 0.0 { number } else { 0.0 };
        let least = [1.0, 0.1, 0.01][self.decimals.min(2)];
        match self.decimals {
            decimals if number > 0.0 && number < least / 2.0 => format!("< {least:.decimals$}"),
            decimals if decimals == 0 || number >= 999.95 => text::grouped(number.round() as u64),
            decimals => format!("{number:.decimals$}"),
        }
    }
}

/// Formats a number that is not compared with others below each other: as in a column of its own, without zeros at
/// its end: `0.42`, `12.3`, `1,408`, `896`.
pub fn precise(number: f64) -> String {
    let text = ColumnFormat::of([number]).write(number);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Formats a share in whole per cent; a small one is not written as zero: `< 1 %`.
pub fn percent(pct: f64) -> String {
    format!("{} %", ColumnFormat { decimals: 0 }.write(pct))
}

/// Formats an energy in kWh or, if it is small, Wh.
pub fn energy(kwh: f64) -> String {
    let (unit, factor) = energy_unit([kwh]);
    format!("{} {unit}", precise(kwh * factor))
}

/// Formats a mass of carbon dioxide in kg or, if it is small, g.
pub fn carbon(kg: f64) -> String {
    match kg {
        1.0.. => format!("{} kg", precise(kg)),
        _ => format!("{} g", precise(kg * 1_000.0)),
    }
}

/// Formats an amount of money: `2,412.30 EUR`.
pub fn money(amount: f64, currency: &str) -> String {
    let hundredths = (amount * 100.0).round() as u64;
    format!("{}.{:02} {currency}", text::grouped(hundredths / 100), hundredths % 100)
}

/// Returns the unit of a column of energies in kWh, and the factor to it.
pub fn energy_unit(kwh: impl IntoIterator<Item = f64>) -> (&'static str, f64) {
    if kwh.into_iter().any(|kwh| kwh >= 1.0) { ("kWh", 1.0) } else { ("Wh", 1_000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_decimals_as_they_deserve() {
        let shown = [0.0, 0.25, 0.42, 9.9, 12.34, 64.04, 999.9, 1_408.2].map(precise);
        assert_eq!(shown, ["0", "0.25", "0.42", "9.9", "12.3", "64", "999.9", "1,408"]);
        assert_eq!([7.0, 20.0, 100.0, 896.0, 1_020.0].map(precise), ["7", "20", "100", "896", "1,020"]);
        assert_eq!([0.004, -3.0].map(precise), ["< 0.01", "0"]);
        assert_eq!([0.0, 0.14, 0.6, 99.7].map(percent), ["0 %", "< 1 %", "1 %", "100 %"]);
        assert_eq!([32.94, 0.2979].map(energy), ["32.9 kWh", "297.9 Wh"]);
        assert_eq!([0.07, 2_397.084].map(|amount| money(amount, "EUR")), ["0.07 EUR", "2,397.08 EUR"]);
    }

    #[test]
    fn a_column_has_one_number_of_decimals_and_one_unit() {
        let column = |numbers: &[f64]| {
            let format = ColumnFormat::of(numbers.iter().copied());
            numbers.iter().map(|number| format.write(*number)).collect::<Vec<_>>()
        };
        assert_eq!(column(&[32.94, 0.2979, 12.0]), ["32.9", "0.3", "12.0"]);
        assert_eq!(column(&[2_511.2, 83.1]), ["2,511", "83"]);
        // Less than was used of them, or none, is not what a job of a minute was allocated.
        assert_eq!(column(&[2_511.2, 0.02, 0.0]), ["2,511", "< 1", "0"]);
        assert_eq!(column(&[12.0, 0.04]), ["12.0", "< 0.1"]);
        assert_eq!(column(&[2.0, 0.004]), ["2.00", "< 0.01"]);
        assert_eq!(column(&[0.0, 0.5]), ["0.00", "0.50"]);
        assert_eq!(column(&[0.0]), ["0"]);
        assert_eq!(column(&[-0.0, 0.5, -0.2]), ["0.00", "0.50", "0.00"]);
        assert_eq!((energy_unit([32.9, 0.3]), energy_unit([0.3])), (("kWh", 1.0), ("Wh", 1_000.0)));
    }
}
