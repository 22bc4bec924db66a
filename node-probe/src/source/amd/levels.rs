//! Performance levels of a clock (`pp_dpm_sclk`): `1: 1700Mhz *`, where a star marks the current one.

/// Returns the highest level in MHz.
pub fn highest(text: &str) -> Option<u64> {
    text.lines().filter_map(level).map(|(mhz, _)| mhz).max()
}

/// Returns the current level in MHz.
pub fn current(text: &str) -> Option<u64> {
    text.lines().filter_map(level).find(|(_, is_current)| *is_current).map(|(mhz, _)| mhz)
}

fn level(line: &str) -> Option<(u64, bool)> {
    let value = line.split_once(':')?.1.trim();
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = value.split_at(digits);
    let unit = unit.to_ascii_lowercase();
    unit.trim_start().starts_with("mhz").then(|| Some((number.parse().ok()?, unit.ends_with('*'))))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_star_marks_the_current_level() {
        let text = "0: 500Mhz\n1: 800Mhz *\nS: 19Mhz\n2: 1700Mhz\n";
        assert_eq!((current(text), highest(text)), (Some(800), Some(1_700)));
        assert_eq!((current(""), highest("0: fast\n1:\n: 5\n")), (None, None));
    }
}
