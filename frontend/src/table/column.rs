//! A column says what it is called, what it counts and how wide it is; how it is read is its table's affair.

use super::value::Unit;

/// One column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name in filters, in the URL and in files: `sm`.
    pub id: &'static str,
    /// Other names by which a filter may call it.
    pub aliases: &'static [&'static str],
    /// What stands in its head, without the unit.
    pub title: &'static str,
    /// What it is, one phrase.
    pub about: &'static str,
    /// What its numbers count.
    pub unit: Unit,
    /// How it is drawn.
    pub look: Look,
    /// Its width in px; the least width, if it grows.
    pub width: u16,
    /// Whether it takes room that is left.
    pub grows: bool,
    /// Who stays when there is no room for all: 0 always, then 1, 2, …; [`Column::HIDDEN`] only when asked for.
    pub rank: u8,
    /// What its sum is.
    pub sum: Sum,
}

/// How a cell is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// As words or figures.
    Plain,
    /// As a bar of utilisation.
    Util,
    /// As a bar of another hue: the class.
    Bar(&'static str),
    /// As a command line: the program, then the rest.
    Command,
    /// As its table draws it; the value is for filters and files.
    Own,
    /// As its table draws it, and there is nothing to sort or to export.
    Picture,
}

/// What is shown of a column below all its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// Nothing.
    None,
    /// The sum.
    Total,
    /// The mean.
    Mean,
    /// The largest.
    Most,
}

impl Column {
    /// The rank of a column that is shown only when it is asked for.
    pub const HIDDEN: u8 = 255;

    /// A column that is hidden until it is asked for.
    pub const fn new(
        id: &'static str,
        title: &'static str,
        unit: Unit,
        width: u16,
        about: &'static str,
    ) -> Self {
        Self {
            id,
            aliases: &[],
            title,
            about,
            unit,
            look: Look::Plain,
            width,
            grows: false,
            rank: Self::HIDDEN,
            sum: Sum::None,
        }
    }

    /// Shown by default; a smaller rank stays longer where there is little room.
    pub const fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }

    /// Takes room that is left.
    pub const fn grows(self) -> Self {
        Self { grows: true, ..self }
    }

    /// Drawn in a way of its own.
    pub const fn look(self, look: Look) -> Self {
        Self { look, ..self }
    }

    /// Summed up below all rows.
    pub const fn sum(self, sum: Sum) -> Self {
        Self { sum, ..self }
    }

    /// Also called so in filters.
    pub const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// Whether its figures stand at the right.
    pub fn is_right(&self) -> bool {
        self.unit.is_number() && matches!(self.look, Look::Plain)
    }

    /// Whether rows can be sorted by it, and it can be told as text.
    pub fn is_told(&self) -> bool {
        self.look != Look::Picture
    }

    /// Its title with its unit, as a text of its own needs it: `SM %`.
    pub fn full_title(&self) -> String {
        match self.unit.head() {
            "" => self.title.to_owned(),
            unit if unit == self.title => unit.to_owned(),
            unit => format!("{} {unit}", self.title),
        }
    }

    /// Its name in a file, which says the unit: `gpu_mem_bytes`.
    pub fn file_name(&self) -> String {
        format!("{}{}", self.id, self.unit.suffix())
    }
}

/// The position of the column that a filter or the URL calls so.
pub fn find(columns: &[Column], name: &str) -> Option<usize> {
    let named = |column: &Column| {
        column.id.eq_ignore_ascii_case(name)
            || column.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
    };
    columns.iter().position(named)
}

/// The columns that are shown by default in a room of so many px: those of the least rank are left out until
/// the others fit.
pub fn fitting(columns: &[Column], room: u32) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..columns.len()).filter(|at| columns[*at].rank != Column::HIDDEN).collect();
    let width = |shown: &[usize]| shown.iter().map(|at| u32::from(columns[*at].width)).sum::<u32>();
    while width(&shown) > room {
        // The last of those of the same rank goes first.
        let Some(least) = shown.iter().copied().max_by_key(|at| columns[*at].rank) else { break };
        if columns[least].rank == 0 {
            break;
        }
        shown.retain(|at| *at != least);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 5] = [
        Column::new("gpu", "GPU", Unit::Id, 40, "").rank(0),
        Column::new("sm", "SM", Unit::Percent, 50, "").rank(2).aliases(&["util"]),
        Column::new("cwd", "Folder", Unit::Words, 200, ""),
        Column::new("mem", "Memory", Unit::Gib, 80, "").rank(1),
        Column::new("cmd", "Command", Unit::Words, 100, "").rank(2).grows(),
    ];

    #[test]
    fn what_matters_least_makes_room_first() {
        assert_eq!(fitting(&COLUMNS, 1_000), [0, 1, 3, 4]);
        assert_eq!(fitting(&COLUMNS, 180), [0, 1, 3]);
        assert_eq!(fitting(&COLUMNS, 120), [0, 3]);
        assert_eq!(fitting(&COLUMNS, 0), [0]);
    }

    #[test]
    fn a_column_answers_to_each_of_its_names() {
        assert_eq!(find(&COLUMNS, "SM"), Some(1));
        assert_eq!(find(&COLUMNS, "util"), Some(1));
        assert_eq!(find(&COLUMNS, "smm"), None);
    }

    #[test]
    fn a_title_says_its_unit_once() {
        assert_eq!(COLUMNS[3].full_title(), "Memory GiB");
        assert_eq!(COLUMNS[3].file_name(), "mem_bytes");
        assert_eq!(COLUMNS[0].full_title(), "GPU");
    }
}
