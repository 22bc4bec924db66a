//! A window is a period that repeats every cycle, before the scenario's start as well as after it.

/// A period of each cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    from_ms: i64,
    /// `None`: always.
    lasts_ms: Option<i64>,
    cycle_ms: i64,
}

impl Window {
    /// From `from_ms` of each cycle for `lasts_ms`; a length of a whole cycle or more, or none, is always.
    pub fn new(from_ms: i64, lasts_ms: Option<i64>, cycle_ms: i64) -> Self {
        Self { from_ms, lasts_ms: lasts_ms.filter(|lasts| *lasts < cycle_ms), cycle_ms }
    }

    /// Time since it began, if active at `t_ms`.
    pub fn age_ms(&self, t_ms: i64) -> Option<i64> {
        let age = self.since_from(t_ms);
        self.lasts_ms.is_none_or(|lasts| age < lasts).then_some(age)
    }

    /// Returns whether it is active at `t_ms`.
    pub fn holds(&self, t_ms: i64) -> bool {
        self.age_ms(t_ms).is_some()
    }

    /// Time since it last began, whether it is still active or not.
    pub fn begun_for_ms(&self, t_ms: i64) -> i64 {
        self.since_from(t_ms)
    }

    /// Returns whether it is active at any time.
    pub fn is_always(&self) -> bool {
        self.lasts_ms.is_none()
    }

    /// Time since it last ended, if not active at `t_ms`.
    pub fn over_for_ms(&self, t_ms: i64) -> Option<i64> {
        let over = self.since_from(t_ms) - self.lasts_ms?;
        (over >= 0).then_some(over)
    }

    /// Number of times it ended before `t_ms`; negative before the first cycle.
    pub fn ends_before(&self, t_ms: i64) -> i64 {
        self.lasts_ms.map_or(0, |lasts| (t_ms - self.from_ms - lasts).div_euclid(self.cycle_ms) + 1)
    }

    /// Returns the window with a later end.
    pub fn longer_by(&self, more_ms: i64) -> Self {
        Self::new(self.from_ms, self.lasts_ms.map(|lasts| lasts + more_ms), self.cycle_ms)
    }

    /// Time outside of the windows up to `t_ms`, counted from the first one after the scenario's start; negative before.
    pub fn outside_ms(&self, t_ms: i64) -> i64 {
        let Some(lasts_ms) = self.lasts_ms else { return 0 };
        let cycles = (t_ms - self.from_ms).div_euclid(self.cycle_ms);
        cycles * (self.cycle_ms - lasts_ms) + (self.since_from(t_ms) - lasts_ms).max(0)
    }

    /// Returns when [`Self::outside_ms`] reached a value; `None` if the window is always active.
    pub fn time_at(&self, outside_ms: i64) -> Option<i64> {
        let lasts_ms = self.lasts_ms?;
        let per_cycle_ms = self.cycle_ms - lasts_ms;
        let cycles = outside_ms.div_euclid(per_cycle_ms);
        Some(self.from_ms + cycles * self.cycle_ms + lasts_ms + outside_ms.rem_euclid(per_cycle_ms))
    }

    fn since_from(&self, t_ms: i64) -> i64 {
        (t_ms - self.from_ms).rem_euclid(self.cycle_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_repeat_in_every_cycle() {
        let window = Window::new(20, Some(30), 100);
        for cycle in -3..4 {
            let held: Vec<i64> = (0..100).filter(|t| window.holds(cycle * 100 + t)).collect();
            assert_eq!(held, (20..50).collect::<Vec<_>>());
        }
        assert_eq!(window.age_ms(125), Some(5));
        assert_eq!(window.over_for_ms(60), Some(10));
        assert_eq!(window.over_for_ms(10), Some(60));
        assert_eq!(window.over_for_ms(30), None);
        assert_eq!((window.ends_before(49), window.ends_before(50), window.ends_before(151)), (0, 1, 2));
    }

    #[test]
    fn it_may_begin_in_the_cycle_before() {
        let window = Window::new(-10, Some(30), 100);
        assert!(window.holds(-5) && window.holds(0) && window.holds(19) && window.holds(95));
        assert!(!window.holds(20) && !window.holds(89));
    }

    #[test]
    fn time_outside_passes_only_between_windows() {
        let window = Window::new(-10, Some(30), 100);
        let passed = |from, to| window.outside_ms(to) - window.outside_ms(from);
        assert_eq!((passed(0, 20), passed(0, 21), passed(0, 90), passed(0, 120)), (0, 1, 70, 70));
        for t_ms in (-500..500).filter(|t_ms| !window.holds(*t_ms)) {
            assert_eq!(window.time_at(window.outside_ms(t_ms)), Some(t_ms));
        }
        assert_eq!(Window::new(0, None, 100).time_at(5), None);
    }

    #[test]
    fn a_window_without_a_length_is_always_active() {
        let window = Window::new(50, None, 100);
        assert!((-200..200).all(|t| window.holds(t)));
        assert_eq!(window.over_for_ms(0), None);
        assert_eq!(window.ends_before(1_000), 0);
    }
}
