//! Layout of a heat map: strips, one per GPU, in groups, one per node.

/// Positions of the strips, in pixels from the top.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strips {
    /// Thickness of a strip.
    thickness: usize,
    groups: Vec<Group>,
}

/// The strips of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    /// Height including the gap below.
    pitch: usize,
    /// Number of strips.
    count: usize,
}

impl Strips {
    /// Maximum thickness; thicker strips would show no more detail.
    const MAX_THICKNESS: usize = 9;

    /// Lays out groups with the given numbers of strips, as thick as fits into `height` but at least one
    /// pixel. Each group is at least `min_height` high, so that its name fits.
    pub fn layout(height: usize, counts: &[usize], min_height: usize) -> Self {
        let strips: usize = counts.iter().map(|count| (*count).max(1)).sum();
        let gap = |thickness: usize| if thickness > 2 { 4 } else { 2 };
        let total = |thickness: usize| strips * thickness + counts.len() * gap(thickness);
        let thickness =
            (1..=Self::MAX_THICKNESS).rev().find(|thickness| total(*thickness) <= height).unwrap_or(1);
        let pitch = |count: usize| (count.max(1) * thickness + gap(thickness)).max(min_height);
        let groups = counts.iter().map(|count| Group { pitch: pitch(*count), count: *count }).collect();
        Self { thickness, groups }
    }

    /// Total height.
    pub fn height(&self) -> usize {
        self.groups.iter().map(|group| group.pitch).sum()
    }

    /// Thickness of a strip.
    pub fn thickness(&self) -> usize {
        self.thickness
    }

    /// Height of a group including the gap below it.
    pub fn pitch(&self, group: usize) -> usize {
        self.groups.get(group).map_or(0, |group| group.pitch)
    }

    /// Number of strips.
    pub fn len(&self) -> usize {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// Returns the top of each strip, in order.
    pub fn tops(&self) -> impl Iterator<Item = usize> + '_ {
        let mut top = 0;
        self.groups.iter().flat_map(move |group| {
            // Strips of a group with spare height are centred.
            let first = top + (group.pitch - (group.count * self.thickness).min(group.pitch)) / 2;
            top += group.pitch;
            (0..group.count).map(move |index| first + index * self.thickness)
        })
    }

    /// Returns the index of the strip at or nearest to `y`, in pixels from the top.
    pub fn nearest(&self, y: f64) -> Option<usize> {
        let distance = |top: usize| (top as f64 + self.thickness as f64 / 2.0 - y).abs();
        let nearest = self.tops().enumerate().min_by(|(_, a), (_, b)| distance(*a).total_cmp(&distance(*b)));
        nearest.map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_two_nodes_of_eight_gpus_fit_into_the_height() {
        let strips = Strips::layout(440, &[8; 22], 14);
        assert_eq!((strips.thickness(), strips.pitch(0), strips.height()), (2, 18, 396));
        assert_eq!(strips.len(), 176);
    }

    #[test]
    fn few_strips_have_the_maximum_thickness() {
        assert_eq!(Strips::layout(440, &[4], 14).thickness(), Strips::MAX_THICKNESS);
        assert_eq!(Strips::layout(440, &[1], 20).pitch(0), 20);
    }

    #[test]
    fn strips_are_at_least_one_pixel_thick() {
        let strips = Strips::layout(10, &[8; 64], 12);
        assert_eq!((strips.thickness(), strips.height()), (1, 64 * 12));
    }

    #[test]
    fn the_nearest_strip_is_found() {
        let strips = Strips::layout(440, &[2, 0, 2], 30);
        let tops: Vec<usize> = strips.tops().collect();
        for (index, top) in tops.iter().enumerate() {
            assert_eq!(strips.nearest(*top as f64 + 1.0), Some(index));
        }
        assert_eq!((strips.nearest(-50.0), strips.nearest(9_000.0)), (Some(0), Some(3)));
        assert_eq!(Strips::layout(440, &[], 14).nearest(3.0), None);
    }

    #[test]
    fn strips_do_not_overlap() {
        let strips = Strips::layout(100, &[3, 1, 8], 14);
        let tops: Vec<usize> = strips.tops().collect();
        assert!(tops.windows(2).all(|pair| pair[0] + strips.thickness() <= pair[1]), "{tops:?}");
        assert!(tops.last().unwrap() + strips.thickness() <= strips.height());
    }
}
