//! The figures of `docs/lab/`: their names, titles, axes and scales.

use super::axis::{Axis, AxisScale};
use super::figure::{FigureStyle, Marks};

const UTILIZATION: Axis = Axis { label: "utilization (live / capacity)", scale: AxisScale::Linear };
const FULL_PERCENT: Axis =
    Axis { label: "utilization before the run, %", scale: AxisScale::FromZero };
const WRITE_COST: Axis = Axis { label: "write cost", scale: AxisScale::Logarithmic };
const REQUEST: Axis = Axis { label: "number of the request", scale: AxisScale::FromZero };
const RESPONSE: Axis = Axis { label: "response time, ms", scale: AxisScale::Logarithmic };
const SIZE: Axis = Axis { label: "size of a request", scale: AxisScale::Kibibytes };
const THROUGHPUT: Axis = Axis { label: "throughput, MB/s", scale: AxisScale::Logarithmic };
const USER_THROUGHPUT: Axis =
    Axis { label: "throughput of the user, MB/s", scale: AxisScale::FromZero };
const CHUNK: Axis = Axis {
    label: "size of a chunk",
    scale: AxisScale::Categories(&["1 KiB", "2 KiB", "4 KiB", "8 KiB", "16 KiB"]),
};
const CHUNK_THROUGHPUT: Axis = Axis { label: "throughput, MB/s", scale: AxisScale::FromZero };
const CREATES: Axis = Axis { label: "files a second", scale: AxisScale::Logarithmic };
const FILE_SIZE: Axis = Axis { label: "size of a file", scale: AxisScale::Kibibytes };
const SSD_OVER_DISK: Axis =
    Axis { label: "rate on the SSD over the disk", scale: AxisScale::Logarithmic };
const DEVICE_TIME: Axis = Axis { label: "device time, s", scale: AxisScale::Logarithmic };

const fn figure(name: &'static str, title: &'static str, x: Axis, y: Axis) -> FigureStyle {
    FigureStyle { name, title, x, y, marks: Marks::Lines }
}

/// Returns the figure of the places that a filesystem writes to, in the order of the writes.
const fn pattern(name: &'static str, title: &'static str) -> FigureStyle {
    let x = Axis { label: "written before, MiB", scale: AxisScale::FromZero };
    let y = Axis { label: "offset on the device, MiB", scale: AxisScale::FromZero };
    FigureStyle { name, title, x, y, marks: Marks::Dots }
}

/// All figures.
pub const FIGURES: [FigureStyle; 45] = [
    figure(
        "hard-drive-seek",
        "Deskstar 7K500: seek time by distance",
        Axis { label: "distance, % of all cylinders", scale: AxisScale::FromZero },
        Axis { label: "time of a seek, ms", scale: AxisScale::FromZero },
    ),
    figure(
        "hard-drive-zones",
        "Deskstar 7K500: sequential reads by zone",
        Axis { label: "zone, from the outermost on", scale: AxisScale::FromZero },
        Axis { label: "throughput, MB/s", scale: AxisScale::FromZero },
    ),
    figure(
        "hard-drive-depth",
        "Deskstar 7K500: random reads of 4 KiB",
        Axis { label: "depth of the command queue", scale: AxisScale::Logarithmic },
        Axis { label: "reads a second", scale: AxisScale::FromZero },
    ),
    figure(
        "hard-drive-equation",
        "Deskstar 7K500: time of a block by blocks written together",
        Axis { label: "blocks of 4 KiB written to a place (f R)", scale: AxisScale::Logarithmic },
        Axis { label: "time of a block, ms", scale: AxisScale::Logarithmic },
    ),
    figure("n-hybrid-figure1", "ext2, files in order, SSD over disk", FILE_SIZE, SSD_OVER_DISK),
    figure("n-hybrid-figure2", "ext2, files at random, SSD over disk", FILE_SIZE, SSD_OVER_DISK),
    figure("n-hybrid-figure5", "Bonnie++: sequential write", CHUNK, CHUNK_THROUGHPUT),
    figure("n-hybrid-figure6", "Bonnie++: sequential rewrite", CHUNK, CHUNK_THROUGHPUT),
    figure("n-hybrid-figure7", "Bonnie++: sequential read", CHUNK, CHUNK_THROUGHPUT),
    figure("n-hybrid-figure8", "Bonnie++: sequential create", CHUNK, CREATES),
    figure(
        "n-hybrid-figure8-synced",
        "Bonnie++: sequential create, each file synced",
        CHUNK,
        CREATES,
    ),
    figure("cost-zipf-0.99", "Write cost, Zipf 0.99", UTILIZATION, WRITE_COST),
    figure("cost-uniform", "Write cost, uniform", UTILIZATION, WRITE_COST),
    figure("cost-tpcc", "Write cost, TPC-C-like", UTILIZATION, WRITE_COST),
    figure("cost-RES-stand-in", "Write cost, a trace in place of RES", UTILIZATION, WRITE_COST),
    figure(
        "histogram-zipf",
        "Segments by utilization, volume 70% full, Zipf 0.99",
        Axis { label: "utilization of a segment", scale: AxisScale::FromZero },
        Axis { label: "share of the segments", scale: AxisScale::FromZero },
    ),
    figure(
        "hotness-tpcc",
        "Hotness of segments by rank, TPC-C-like, 70% full",
        Axis { label: "rank of the segment, the hottest first", scale: AxisScale::FromZero },
        Axis { label: "hotness over the hottest segment's", scale: AxisScale::Logarithmic },
    ),
    figure("random-writes", "Random writes by size of request", SIZE, THROUGHPUT),
    figure("fast09-spikes-8k", "Mtron: response by request, 8 KiB", REQUEST, RESPONSE),
    figure("fast09-spikes-1024k", "Mtron: response by request, 1 MiB", REQUEST, RESPONSE),
    figure("fast09-spikes-4096k", "Mtron: response by request, 4 MiB", REQUEST, RESPONSE),
    figure("fast09-sizes-sandisk", "SanDisk: throughput by size of request", SIZE, THROUGHPUT),
    figure("fast09-sizes-samsung", "Samsung: throughput by size of request", SIZE, THROUGHPUT),
    figure("fast09-sizes-mtron", "Mtron: throughput by size of request", SIZE, THROUGHPUT),
    figure("fast09-figure5", "FSL on Mtron, hybrid mapping", FULL_PERCENT, DEVICE_TIME),
    figure("fast09-figure6", "CVFS-Large on Mtron, hybrid mapping", FULL_PERCENT, DEVICE_TIME),
    figure(
        "fast09-figure9",
        "Mtron, 70% full: random writes by response time",
        Axis {
            label: "response time, up to, ms",
            scale: AxisScale::Categories(&[
                "0.25", "0.5", "0.75", "1", "2", "3", "4", "6", "8", "10", "100", "more",
            ]),
        },
        Axis { label: "share of the writes, %", scale: AxisScale::FromZero },
    ),
    figure(
        "atc09-sawtooth",
        "Write bandwidth by size of the writes, stripe of 1 MiB",
        Axis { label: "size of a write, MiB", scale: AxisScale::FromZero },
        Axis { label: "throughput, MB/s", scale: AxisScale::FromZero },
    ),
    figure(
        "atc09-alignment",
        "Aligned over unaligned writes of 4 KiB",
        Axis { label: "probability of a sequential write", scale: AxisScale::FromZero },
        Axis { label: "ratio of mean responses", scale: AxisScale::FromZero },
    ),
    figure(
        "atc09-priority",
        "Priority requests under priority-aware cleaning",
        Axis { label: "share of writes, %", scale: AxisScale::FromZero },
        Axis { label: "response time saved, %", scale: AxisScale::Linear },
    ),
    figure("flash-utilization-0", "SSD-M, Zipf 0.99", UTILIZATION, USER_THROUGHPUT),
    figure("flash-utilization-1", "SSD-M, uniform", UTILIZATION, USER_THROUGHPUT),
    figure("flash-utilization-2", "SSD-M, TPC-C-like", UTILIZATION, USER_THROUGHPUT),
    figure("flash-utilization-3", "SSD-M, a trace in place of RES", UTILIZATION, USER_THROUGHPUT),
    figure(
        "flash-erases",
        "Erases on a page-mapped device",
        Axis {
            label: "workload",
            scale: AxisScale::Categories(&["Zipf 0.99", "uniform", "TPC-C-like", "trace"]),
        },
        Axis { label: "erases for each GiB of the user", scale: AxisScale::FromZero },
    ),
    figure(
        "postmark-sequentiality",
        "Segmented sequentiality of writes under Postmark",
        Axis { label: "workload", scale: AxisScale::Categories(&["SS", "SL", "LS", "LL"]) },
        Axis { label: "sequential share of the written bytes", scale: AxisScale::FromZero },
    ),
    pattern("shin-pattern-sfs", "Writes of SFS, Postmark SS"),
    pattern("shin-pattern-ext2", "Writes of ext2, Postmark SS"),
    pattern("shin-pattern-ext3", "Writes of ext3, Postmark SS"),
    pattern("shin-pattern-ext4", "Writes of ext4, Postmark SS"),
    pattern("shin-pattern-xfs", "Writes of XFS, Postmark SS"),
    pattern("shin-pattern-btrfs", "Writes of btrfs, Postmark SS"),
    pattern("shin-pattern-nilfs2", "Writes of NILFS2, random overwriting"),
    figure(
        "shin-alignment",
        "Postmark on a partition at sector 63, Mtron",
        Axis { label: "workload", scale: AxisScale::Categories(&["SS", "SL", "LS", "LL"]) },
        Axis { label: "device time over that of an aligned partition", scale: AxisScale::FromZero },
    ),
    figure(
        "shin-queue",
        "Random requests of 4 KiB by depth of the command queue",
        Axis { label: "depth of the command queue", scale: AxisScale::Logarithmic },
        Axis { label: "requests a second", scale: AxisScale::Logarithmic },
    ),
];

/// Returns the figure of this name.
pub(super) fn by_name(name: &str) -> &'static FigureStyle {
    let found = FIGURES.iter().find(|figure| figure.name == name);
    found.unwrap_or_else(|| panic!("no figure {name} in FIGURES"))
}
