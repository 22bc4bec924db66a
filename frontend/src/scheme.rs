//! How busy becomes how bright: the colour schemes, as steps that the style sheet paints.

/// A way to colour utilisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// One hue from grey to bright: busy is good, and no alarm.
    #[default]
    Ramp,
    /// nvnodetop's: green below 60, yellow below 85, red from there.
    NvNodeTop,
    /// nvitop's for utilisation: green below 10, yellow below 75, red from there.
    NvItop,
    /// nvitop's for memory: green below 10, yellow below 80, red from there.
    NvItopMemory,
    /// The user's own: green below the first, yellow below the second, red from there.
    Own(u8, u8),
}

impl Scheme {
    /// The schemes with a name, in the order in which the key `c` walks through them.
    pub const NAMED: [Self; 4] = [Self::Ramp, Self::NvNodeTop, Self::NvItop, Self::NvItopMemory];

    /// Name in storage: of the user's own, its bounds.
    pub fn name(self) -> String {
        match self {
            Self::Ramp => "ramp".to_owned(),
            Self::NvNodeTop => "nvnodetop".to_owned(),
            Self::NvItop => "nvitop".to_owned(),
            Self::NvItopMemory => "nvitop-memory".to_owned(),
            Self::Own(light, heavy) => format!("own {light} {heavy}"),
        }
    }

    /// Name in the style sheet: one hue, or traffic lights.
    pub fn colours(self) -> &'static str {
        if self == Self::Ramp { "ramp" } else { "lights" }
    }

    /// What the user reads.
    pub fn title(self) -> String {
        match self {
            Self::Ramp => "one hue".to_owned(),
            Self::NvNodeTop => "nvnodetop 60/85".to_owned(),
            Self::NvItop => "nvitop 10/75".to_owned(),
            Self::NvItopMemory => "nvitop memory 10/80".to_owned(),
            Self::Own(light, heavy) => format!("own {light}/{heavy}"),
        }
    }

    /// The user's own scheme, its bounds brought into order and within 1 to 100.
    pub fn own(light: u8, heavy: u8) -> Self {
        let (light, heavy) = (light.clamp(1, 100), heavy.clamp(1, 100));
        Self::Own(light.min(heavy), light.max(heavy))
    }

    /// The scheme of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        if let Some(named) = Self::NAMED.into_iter().find(|scheme| scheme.name() == name) {
            return Some(named);
        }
        let mut words = name.strip_prefix("own ")?.split(' ').map_while(|word| word.parse().ok());
        Some(Self::own(words.next()?, words.next()?))
    }

    /// The next one.
    pub fn next(self) -> Self {
        match self {
            Self::Ramp => Self::NvNodeTop,
            Self::NvNodeTop => Self::NvItop,
            Self::NvItop => Self::NvItopMemory,
            Self::NvItopMemory | Self::Own(..) => Self::Ramp,
        }
    }

    /// The step of a utilisation in %, 0 to 3; step 0 is grey in every scheme.
    pub fn step(self, util_pct: u64) -> usize {
        let bounds = match self {
            Self::Ramp => [10, 60, 85],
            Self::NvNodeTop => [1, 60, 85],
            Self::NvItop => [1, 10, 75],
            Self::NvItopMemory => [1, 10, 80],
            Self::Own(light, heavy) => [1, u64::from(light), u64::from(heavy)],
        };
        bounds.iter().filter(|bound| util_pct >= **bound).count()
    }

    /// The class of a utilisation's colour; without a reading, the class of a gap.
    pub fn class(self, util_pct: Option<u64>) -> &'static str {
        match util_pct.map(|util| self.step(util)) {
            None => "heat-none",
            Some(0) => "heat-0",
            Some(1) => "heat-1",
            Some(2) => "heat-2",
            Some(_) => "heat-3",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_change_colour_where_their_tools_do() {
        assert_eq!([0, 59, 60, 84, 85, 100].map(|util| Scheme::NvNodeTop.step(util)), [0, 1, 2, 2, 3, 3]);
        assert_eq!([0, 9, 10, 74, 75].map(|util| Scheme::NvItop.step(util)), [0, 1, 2, 2, 3]);
        assert_eq!([0, 9, 10, 97].map(|util| Scheme::Ramp.step(util)), [0, 0, 1, 3]);
    }

    #[test]
    fn no_reading_does_not_look_like_idle() {
        assert_ne!(Scheme::Ramp.class(None), Scheme::Ramp.class(Some(0)));
    }

    #[test]
    fn walking_visits_every_scheme_and_names_lead_back() {
        let mut scheme = Scheme::default();
        for expected in [Scheme::NvNodeTop, Scheme::NvItop, Scheme::NvItopMemory, Scheme::Ramp] {
            scheme = scheme.next();
            assert_eq!(scheme, expected);
            assert_eq!(Scheme::of_name(&scheme.name()), Some(scheme));
        }
    }

    #[test]
    fn bounds_of_ones_own_are_remembered_and_put_in_order() {
        assert_eq!(Scheme::of_name(&Scheme::own(80, 30).name()), Some(Scheme::Own(30, 80)));
        assert_eq!(Scheme::own(0, 200), Scheme::Own(1, 100));
        assert_eq!([0, 29, 30, 80].map(|util| Scheme::Own(30, 80).step(util)), [0, 1, 2, 3]);
        assert_eq!(Scheme::of_name("own 3"), None);
    }
}
