//! Data layouts: the place of file data, which `sfs-mkfs` fixes for the life of a volume.

/// The layout of a volume's file data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum DataLayout {
    /// Data is appended to the log, and never overwritten.
    #[default]
    Log = 0,
    /// Data is overwritten in place; new blocks go to the emptiest segment until it is full (FAST
    /// 2009, section 4: Greedy-Space).
    GreedySpace = 1,
    /// Data is overwritten in place; new blocks go to the next segment under a clock hand that is
    /// emptier than a threshold of the paper's table 3 (Clock-Space).
    ClockSpace = 2,
    /// Data is placed as with [`DataLayout::ClockSpace`], with thresholds from the formula that the
    /// table approximates.
    ClockSpaceExact = 3,
    /// Data is overwritten in place; new blocks go near their inode's segment, as in ext2: the
    /// paper's baseline.
    BlockGroup = 4,
}

impl DataLayout {
    /// All data layouts.
    pub const ALL: [Self; 5] =
        [Self::Log, Self::GreedySpace, Self::ClockSpace, Self::ClockSpaceExact, Self::BlockGroup];

    /// Returns the name of the data layout in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::GreedySpace => "greedy-space",
            Self::ClockSpace => "clock-space",
            Self::ClockSpaceExact => "clock-space-exact",
            Self::BlockGroup => "block-group",
        }
    }

    /// Returns the data layout with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|data_layout| data_layout.name() == name)
    }

    pub(super) fn decode(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|data_layout| *data_layout as u32 == number)
    }
}
