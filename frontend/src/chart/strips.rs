//! A heat map is strips, one a GPU, in groups, one a node: where each lies, and who is under a point.

/// Where the strips of some groups lie, in pixels from the top.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strips {
    /// Thickness of a strip.
    line: usize,
    /// From the top of each group to the top of its successor, and how many strips it has.
    groups: Vec<(usize, usize)>,
}

impl Strips {
    /// No strip is thicker, for it would say no more.
    const THICKEST: usize = 9;

    /// Strips of groups with so many each, as thick as fits into `height`, but never thinner than a pixel;
    /// no group is lower than `lowest`, so that its name has room.
    pub fn within(height: usize, counts: &[usize], lowest: usize) -> Self {
        let lines: usize = counts.iter().map(|count| (*count).max(1)).sum();
        let gap = |line: usize| if line > 2 { 4 } else { 2 };
        let total = |line: usize| lines * line + counts.len() * gap(line);
        let line = (1..=Self::THICKEST).rev().find(|line| total(*line) <= height).unwrap_or(1);
        let pitch = |count: usize| (count.max(1) * line + gap(line)).max(lowest);
        Self { line, groups: counts.iter().map(|count| (pitch(*count), *count)).collect() }
    }

    /// Height of all.
    pub fn height(&self) -> usize {
        self.groups.iter().map(|(pitch, _)| pitch).sum()
    }

    /// Thickness of a strip.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Height of a group with the gap to the next one.
    pub fn pitch(&self, group: usize) -> usize {
        self.groups.get(group).map_or(0, |(pitch, _)| *pitch)
    }

    /// How many strips there are.
    pub fn len(&self) -> usize {
        self.groups.iter().map(|(_, count)| count).sum()
    }

    /// The top of each strip, in order.
    pub fn tops(&self) -> impl Iterator<Item = usize> + '_ {
        let mut top = 0;
        self.groups.iter().flat_map(move |(pitch, count)| {
            // A low group's strips stand in its middle.
            let first = top + (pitch - (count * self.line).min(*pitch)) / 2;
            top += pitch;
            (0..*count).map(move |index| first + index * self.line)
        })
    }

    /// The strip at or next to `y`.
    pub fn at(&self, y: f64) -> Option<usize> {
        let away = |top: usize| (top as f64 + self.line as f64 / 2.0 - y).abs();
        let nearest = self.tops().enumerate().min_by(|(_, a), (_, b)| away(*a).total_cmp(&away(*b)));
        nearest.map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_four_nodes_of_eight_fit_a_screen() {
        let strips = Strips::within(440, &[8; 22], 14);
        assert_eq!((strips.line(), strips.pitch(0), strips.height()), (2, 18, 396));
        assert_eq!(strips.len(), 176);
    }

    #[test]
    fn few_strips_are_thick_and_no_thicker_than_needed() {
        assert_eq!(Strips::within(440, &[4], 14).line(), Strips::THICKEST);
        assert_eq!(Strips::within(440, &[1], 20).pitch(0), 20);
    }

    #[test]
    fn strips_are_never_thinner_than_a_pixel() {
        let strips = Strips::within(10, &[8; 64], 12);
        assert_eq!((strips.line(), strips.height()), (1, 64 * 12));
    }

    #[test]
    fn who_is_under_a_point_is_the_nearest() {
        let strips = Strips::within(440, &[2, 0, 2], 30);
        let tops: Vec<usize> = strips.tops().collect();
        for (index, top) in tops.iter().enumerate() {
            assert_eq!(strips.at(*top as f64 + 1.0), Some(index));
        }
        assert_eq!((strips.at(-50.0), strips.at(9_000.0)), (Some(0), Some(3)));
        assert_eq!(Strips::within(440, &[], 14).at(3.0), None);
    }

    #[test]
    fn strips_do_not_lie_on_each_other() {
        let strips = Strips::within(100, &[3, 1, 8], 14);
        let tops: Vec<usize> = strips.tops().collect();
        assert!(tops.windows(2).all(|pair| pair[0] + strips.line() <= pair[1]), "{tops:?}");
        assert!(tops.last().unwrap() + strips.line() <= strips.height());
    }
}
