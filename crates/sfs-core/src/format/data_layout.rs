//! Where file data goes, as `sfs-mkfs` has laid it down for good.

/// The data layout of a volume's file data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum DataLayout {
    /// Appended to the log, never overwritten.
    #[default]
    Log = 0,
    /// Overwritten where it is; new blocks go to the emptiest segment until it is full (FAST 2009,
    /// section 4: Greedy-Space).
    GreedySpace = 1,
    /// Likewise; new blocks go to the next segment under a hand that is emptier than a threshold, which
    /// the paper's table 3 gives (Clock-Space).
    ClockSpace = 2,
    /// As [`DataLayout::ClockSpace`], by the relation that the table is an approximation of.
    ClockSpaceExact = 3,
    /// Likewise; new blocks go near their inode's segment, as in ext2: what the paper compares with.
    BlockGroup = 4,
}

impl DataLayout {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Log, Self::GreedySpace, Self::ClockSpace, Self::ClockSpaceExact, Self::BlockGroup];

    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::GreedySpace => "greedy-space",
            Self::ClockSpace => "clock-space",
            Self::ClockSpaceExact => "clock-space-exact",
            Self::BlockGroup => "block-group",
        }
    }

    /// The data layout of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|data_layout| data_layout.name() == name)
    }

    pub(super) fn decode(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|data_layout| *data_layout as u32 == number)
    }
}
