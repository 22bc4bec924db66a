//! Colours of the terminal, which only repeat what symbols and words say.

use nodeglass_rules::severity::Severity;
use ratatui::style::{Color, Modifier, Style};
use std::env;

/// Steps of utilisation from grey to bright, as on the page: a busy GPU is good.
const RAMP: [u8; 5] = [241, 65, 72, 78, 84];
/// The colours on a light background: from grey to dark.
const LIGHT_RAMP: [u8; 5] = [246, 71, 34, 28, 22];

/// Number of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
    /// None: only bold, dim and reverse.
    Plain,
    /// The 16 of any terminal.
    Basic,
    /// 256.
    Indexed,
    /// 256, on a light background.
    Light,
}

impl Palette {
    /// The palette of a terminal: by `NO_COLOR`, `TERM` and `COLORTERM`.
    pub fn detect() -> Self {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        match (set("NO_COLOR"), set("COLORTERM"), set("TERM")) {
            (Some(_), ..) => Self::Plain,
            (None, Some(_), _) => Self::Indexed,
            (None, None, Some(term)) if term.contains("256") => Self::Indexed,
            (None, None, Some(term)) if term != "dumb" => Self::Basic,
            (None, None, _) => Self::Plain,
        }
    }

    /// The palette for a light background.
    #[must_use]
    pub fn on_light(self) -> Self {
        if self == Self::Indexed { Self::Light } else { self }
    }

    /// A colour of the 256, of those on a light background, and of the 16.
    fn colour(self, indexed: u8, light: u8, basic: Color) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Basic => Style::new().fg(basic),
            Self::Indexed => Style::new().fg(Color::Indexed(indexed)),
            Self::Light => Style::new().fg(Color::Indexed(light)),
        }
    }

    /// Less important text, and values that are not current.
    pub fn dim(self) -> Style {
        match self {
            // Many terminals do not show the attribute well; grey is a colour, so that it needs a palette.
            Self::Indexed => Style::new().fg(Color::Indexed(244)),
            Self::Light => Style::new().fg(Color::Indexed(241)),
            Self::Basic | Self::Plain => Style::new().add_modifier(Modifier::DIM),
        }
    }

    /// Titles and names.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The row of the cursor, in the pane that has the keys.
    pub fn cursor(self) -> Style {
        match self {
            Self::Indexed => Style::new().bg(Color::Indexed(237)).add_modifier(Modifier::BOLD),
            Self::Light => Style::new().bg(Color::Indexed(254)).add_modifier(Modifier::BOLD),
            Self::Basic | Self::Plain => Style::new().add_modifier(Modifier::REVERSED),
        }
    }

    /// A severity's symbol or text.
    pub fn severity(self, severity: Severity) -> Style {
        match severity {
            Severity::Ok => self.colour(78, 28, Color::Green),
            Severity::Ended | Severity::Pending => self.dim(),
            Severity::Warning => self.colour(214, 130, Color::Yellow),
            Severity::Error => self.colour(203, 160, Color::Red),
        }
    }

    /// Utilisation in %.
    pub fn util(self, pct: u64) -> Style {
        let step = (pct.min(99) as usize) * RAMP.len() / 100;
        self.colour(RAMP[step], LIGHT_RAMP[step], Color::Green)
    }

    /// Memory of a device or host.
    pub fn memory(self) -> Style {
        self.colour(104, 61, Color::Blue)
    }

    /// Memory of a GPU by how full it is.
    pub fn memory_of(self, level: MemoryLevel) -> Style {
        match level {
            MemoryLevel::Low => self.memory(),
            MemoryLevel::Moderate => self.severity(Severity::Warning),
            MemoryLevel::High => self.severity(Severity::Error),
        }
    }

    /// Power.
    pub fn power(self) -> Style {
        self.colour(173, 130, Color::Magenta)
    }

    /// Readings of a host.
    pub fn host(self) -> Style {
        self.colour(75, 25, Color::Cyan)
    }

    /// The frame of the pane that has the keys.
    pub fn focus(self) -> Style {
        self.colour(75, 25, Color::Cyan).add_modifier(Modifier::BOLD)
    }
}

/// Use of a GPU's memory, by nvnodetop's thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLevel {
    /// Below 60 %.
    Low,
    /// From 60 % on.
    Moderate,
    /// From 85 % on.
    High,
}

impl MemoryLevel {
    /// The level of an amount in bytes of a whole in bytes.
    pub fn of(used: u64, whole: u64) -> Self {
        match used.saturating_mul(100).checked_div(whole) {
            None | Some(..60) => Self::Low,
            Some(60..85) => Self::Moderate,
            Some(85..) => Self::High,
        }
    }
}

/// The symbol of a severity: a shape of its own for each.
pub fn symbol(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "●",
        other => other.symbol(),
    }
}
