//! Description of a column: name, unit, width and style. How its value is read is the table's concern.

use super::value::CellUnit;
use nodeglass_protocol::Vendor;
use nodeglass_protocol::field::{Aggregate, Field, FullScale, ValueKind, VendorWording, Vendors};

/// Width of a letter of a title, of a cell's padding, and of the sign of a sorted column, in px.
const LETTER_PX: u32 = 7;
const PADDING_PX: u32 = 16;
const SIGN_PX: u32 = 18;
/// Share of the spare width that a text gets, compared with a graphic.
const TEXT_WEIGHT: u32 = 3;

/// One column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its id in filters, in the URL and in files: `sm`.
    pub id: &'static str,
    /// Other names in filters.
    pub aliases: &'static [&'static str],
    /// Its title, without the unit.
    pub title: &'static str,
    /// Its content, one phrase.
    pub about: &'static str,
    /// The unit of its numbers.
    pub unit: CellUnit,
    /// The way it is drawn.
    pub style: CellStyle,
    /// Its width in px; the minimum if it grows.
    pub width: u16,
    /// Its width in px where values contain the vendor: `Intel 0`.
    pub width_with_vendor: Option<u16>,
    /// Whether it takes spare width.
    pub grows: bool,
    /// Priority when width is scarce: 0 stays always, then 1, 2, …; [`Column::HIDDEN`] only on request.
    pub rank: u8,
    /// Its aggregate.
    pub sum: Sum,
    /// Title and meaning where vendors name it differently.
    pub variants: &'static [VendorWording],
}

/// The way a cell is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellStyle {
    /// Text or figures.
    Plain,
    /// A bar of utilisation.
    Util,
    /// A bar with another hue: its CSS class.
    Bar(&'static str),
    /// A command line: the program, then the rest.
    Command,
    /// By its table; the value serves filters and exports.
    Custom,
    /// By its table, without a value to sort or export.
    Graphic,
}

/// The aggregate in a table's footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// Nothing.
    None,
    /// The sum.
    Total,
    /// The mean.
    Mean,
    /// The largest.
    Max,
}

impl Column {
    /// The rank of a column that is shown only on request.
    pub const HIDDEN: u8 = 255;

    /// Creates a column that is hidden by default.
    pub const fn new(
        id: &'static str,
        title: &'static str,
        unit: CellUnit,
        width: u16,
        about: &'static str,
    ) -> Self {
        Self {
            id,
            aliases: &[],
            title,
            about,
            unit,
            style: CellStyle::Plain,
            width,
            width_with_vendor: None,
            grows: false,
            rank: Self::HIDDEN,
            sum: Sum::None,
            variants: &[],
        }
    }

    /// Creates the column of a field as the catalogue describes it, hidden by default.
    pub fn of_field<F: Field>(field: F) -> Self {
        let metric = field.metric();
        let unit = match metric.kind {
            ValueKind::State => CellUnit::Id,
            _ => CellUnit::of_catalogue(metric.unit),
        };
        let width = match metric.full_scale {
            FullScale::Field(_) => unit.width().max(112),
            _ => unit.width(),
        };
        let sum = match metric.aggregate {
            Aggregate::None => Sum::None,
            Aggregate::Sum => Sum::Total,
            Aggregate::Mean => Sum::Mean,
            Aggregate::Max => Sum::Max,
        };
        let variants = metric.variants;
        Self { sum, variants, ..Self::new(metric.column_id(), metric.short, unit, width, metric.help) }
    }

    /// Sets its width where values contain the vendor, which is not NVIDIA.
    pub const fn width_with_vendor(self, width: u16) -> Self {
        Self { width_with_vendor: Some(width), ..self }
    }

    /// Returns the column with the title, meaning and width that it has for devices of some vendors.
    pub fn for_vendors(self, vendors: Vendors) -> Self {
        let is_named = !matches!(vendors, Vendors::Unknown | Vendors::One(Vendor::Unknown | Vendor::Nvidia));
        let width = self.width_with_vendor.filter(|_| is_named).unwrap_or(self.width);
        let this = Self { width, ..self };
        let wording = self.variants.iter().find(|(whose, _)| *whose == vendors).map(|(_, wording)| wording);
        wording.map_or(this, |wording| Self { title: wording.short, about: wording.help, ..this })
    }

    /// Sets its width.
    pub const fn width(self, width: u16) -> Self {
        Self { width, ..self }
    }

    /// Shows it by default; a smaller rank stays longer where width is scarce.
    pub const fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }

    /// Lets it take spare width.
    pub const fn grows(self) -> Self {
        Self { grows: true, ..self }
    }

    /// Sets its style.
    pub const fn style(self, style: CellStyle) -> Self {
        Self { style, ..self }
    }

    /// Sets its aggregate.
    pub const fn sum(self, sum: Sum) -> Self {
        Self { sum, ..self }
    }

    /// Sets other names for filters.
    pub const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// Returns whether its figures are right-aligned.
    pub fn is_right(&self) -> bool {
        self.unit.is_number() && matches!(self.style, CellStyle::Plain | CellStyle::Custom)
    }

    /// Returns whether rows can be sorted by it and it can be exported.
    pub fn has_value(&self) -> bool {
        self.style != CellStyle::Graphic
    }

    /// Returns the width in px that its title needs with its unit.
    fn title_width(&self) -> u32 {
        PADDING_PX + self.full_title().chars().count() as u32 * LETTER_PX
    }

    /// Returns the title with its unit, for use outside the table: `SM %`.
    pub fn full_title(&self) -> String {
        match self.unit.head() {
            "" => self.title.to_owned(),
            unit if unit == self.title => unit.to_owned(),
            unit => format!("{} {unit}", self.title),
        }
    }

    /// Returns the name in a file, which contains the unit: `gpu_mem_bytes`.
    pub fn file_name(&self) -> String {
        format!("{}{}", self.id, self.unit.suffix())
    }
}

/// Returns the position of the column that a filter or the URL names.
pub fn find(columns: &[Column], name: &str) -> Option<usize> {
    let named = |column: &Column| {
        column.id.eq_ignore_ascii_case(name)
            || column.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
    };
    columns.iter().position(named)
}

/// Returns the default columns that fit into a width in px: those `without_values` are left out, then the highest
/// ranks until the others fit.
pub fn fitting(columns: &[Column], without_values: &[usize], room: u32) -> Vec<usize> {
    let is_default = |at: &usize| columns[*at].rank != Column::HIDDEN && !without_values.contains(at);
    let mut shown: Vec<usize> = (0..columns.len()).filter(is_default).collect();
    let width = |shown: &[usize]| shown.iter().map(|at| u32::from(columns[*at].width)).sum::<u32>();
    while width(&shown) > room {
        // The last of equal rank goes first.
        let Some(least) = shown.iter().copied().max_by_key(|at| columns[*at].rank) else { break };
        if columns[least].rank == 0 {
            break;
        }
        shown.retain(|at| *at != least);
    }
    shown
}

/// Returns the widths of shown columns in px. Of the rest of the room, each gets what its title needs if there is enough for
/// all, the `sorted` one with its sign, or else for that one; growing columns share what is left in proportion to their
/// own width, of which texts
/// count more than graphics.
pub fn widths(columns: &[Column], shown: &[usize], sorted: Option<usize>, room: u32) -> Vec<u32> {
    let own = |at: &usize| u32::from(columns[*at].width);
    let sign = |at: &usize| if sorted == Some(*at) { SIGN_PX } else { 0 };
    let titled = |at: &usize| own(at).max(columns[*at].title_width() + sign(at));
    let sum = |width: &dyn Fn(&usize) -> u32| shown.iter().map(width).sum::<u32>();
    let sorted_titled = |at: &usize| if sorted == Some(*at) { titled(at) } else { own(at) };
    let candidates: [&dyn Fn(&usize) -> u32; 2] = [&titled, &sorted_titled];
    let width = candidates.into_iter().find(|width| sum(*width) <= room).unwrap_or(&own);
    let weight = |at: &usize| match columns[*at] {
        Column { grows: false, .. } => 0,
        Column { unit: CellUnit::Text, style: CellStyle::Plain | CellStyle::Custom, width, .. } => {
            TEXT_WEIGHT * u32::from(width)
        }
        Column { width, .. } => u32::from(width),
    };
    let (spare, weights) = (room.saturating_sub(sum(width)), sum(&weight).max(1));
    shown.iter().map(|at| width(at) + spare * weight(at) / weights).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_grow_share_the_room_by_their_width() {
        let columns = [
            Column::new("name", "Name", CellUnit::Text, 100, "").grows(),
            Column::new("gpus", "GPUs", CellUnit::Count, 50, ""),
            Column::new("state", "State", CellUnit::Text, 200, "").grows(),
        ];
        assert_eq!(widths(&columns, &[0, 1, 2], None, 500), [150, 50, 300]);
        assert_eq!(widths(&columns, &[0, 1, 2], None, 200), [100, 50, 200], "none is narrower than it needs");
        assert_eq!(widths(&columns, &[1], None, 500), [50]);
        assert_eq!(widths(&columns, &[1], Some(1), 500), [62], "its title and the sign of its order");
        let narrow = [
            Column::new("state", "State", CellUnit::Text, 100, "").grows(),
            Column::new("gpus", "GPUs", CellUnit::Count, 50, ""),
            Column::new("left", "Time left", CellUnit::Count, 50, ""),
        ];
        assert_eq!(widths(&narrow, &[0, 1, 2], Some(1), 215), [103, 62, 50], "not all titles fit");
    }

    #[test]
    fn texts_get_more_of_the_room_than_graphics() {
        let columns = [
            Column::new("spark", "S", CellUnit::Text, 100, "").grows().style(CellStyle::Graphic),
            Column::new("flags", "Flags", CellUnit::Text, 100, "").grows(),
        ];
        assert_eq!(widths(&columns, &[0, 1], None, 400), [150, 250]);
    }

    const COLUMNS: [Column; 5] = [
        Column::new("gpu", "GPU", CellUnit::Id, 40, "").rank(0),
        Column::new("sm", "SM", CellUnit::Percent, 50, "").rank(2).aliases(&["util"]),
        Column::new("cwd", "Folder", CellUnit::Text, 200, ""),
        Column::new("mem", "Memory", CellUnit::Gib, 80, "").rank(1),
        Column::new("cmd", "Command", CellUnit::Text, 100, "").rank(2).grows(),
    ];

    #[test]
    fn the_least_important_columns_are_dropped_first() {
        assert_eq!(fitting(&COLUMNS, &[], 1_000), [0, 1, 3, 4]);
        assert_eq!(fitting(&COLUMNS, &[], 180), [0, 1, 3]);
        assert_eq!(fitting(&COLUMNS, &[], 120), [0, 3]);
        assert_eq!(fitting(&COLUMNS, &[], 0), [0]);
    }

    #[test]
    fn columns_without_values_leave_their_space_to_others() {
        assert_eq!(fitting(&COLUMNS, &[1], 1_000), [0, 3, 4]);
        assert_eq!(fitting(&COLUMNS, &[3], 120), [0, 1]);
    }

    #[test]
    fn a_column_is_titled_as_its_vendors_name_it() {
        use nodeglass_protocol::GpuField;
        let title = |field, vendors| Column::of_field(field).for_vendors(vendors).title;
        assert_eq!(title(GpuField::SmClock, Vendors::One(Vendor::Nvidia)), "SM");
        assert_eq!(title(GpuField::SmClock, Vendors::One(Vendor::Amd)), "Shader");
        assert_eq!(title(GpuField::SmClock, Vendors::Several), "Core");
        assert_eq!(title(GpuField::Util, Vendors::One(Vendor::Tpu)), "Duty cycle");
        assert_eq!(title(GpuField::PState, Vendors::Several), title(GpuField::PState, Vendors::Unknown));
    }

    #[test]
    fn a_column_is_found_by_each_of_its_names() {
        assert_eq!(find(&COLUMNS, "SM"), Some(1));
        assert_eq!(find(&COLUMNS, "util"), Some(1));
        assert_eq!(find(&COLUMNS, "smm"), None);
    }

    #[test]
    fn a_column_of_devices_has_space_for_other_vendors() {
        let width = |vendors| COLUMNS[0].width_with_vendor(74).for_vendors(vendors).width;
        assert_eq!([Vendors::Unknown, Vendors::One(Vendor::Nvidia)].map(width), [40, 40]);
        assert_eq!([Vendors::One(Vendor::Intel), Vendors::Several].map(width), [74, 74]);
    }

    #[test]
    fn a_title_contains_its_unit_once() {
        assert_eq!(COLUMNS[3].full_title(), "Memory GiB");
        assert_eq!(COLUMNS[3].file_name(), "mem_bytes");
        assert_eq!(COLUMNS[0].full_title(), "GPU");
    }
}
