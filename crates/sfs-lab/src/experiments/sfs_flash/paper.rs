//! The figures of the SFS paper, read from its plots and not scaled.

/// A filesystem, and the values of the paper's figures 10 to 12 at 85%, for Zipf, uniform, TPC-C
/// and RES: throughput in MB/s, flash write amplification and thousands of erases with FAST, and
/// the last two values with page mapping.
type Published = (&'static str, [[f64; 4]; 5]);

const PAPER: [Published; 5] = [
    (
        "SFS",
        [
            [80.4, 41.1, 142.8, 212.9],
            [1.12, 1.12, 1.12, 1.12],
            [18.8, 37.6, 16.8, 5.6],
            [1.00, 1.00, 1.00, 1.00],
            [16.8, 33.7, 14.9, 5.0],
        ],
    ),
    (
        "LFS-CB",
        [
            [59.3, 32.1, 73.1, 126.8],
            [1.12, 1.12, 1.12, 1.12],
            [23.9, 43.2, 20.8, 6.5],
            [1.00, 1.00, 1.00, 1.00],
            [21.5, 38.7, 18.7, 5.7],
        ],
    ),
    (
        "ext4",
        [
            [34.0, 30.9, 91.2, 160.7],
            [5.91, 5.96, 4.09, 5.11],
            [80.6, 93.5, 42.7, 29.1],
            [3.23, 2.73, 2.18, 2.94],
            [43.9, 42.8, 22.8, 16.7],
        ],
    ),
    (
        "btrfs",
        [
            [1.6, 3.8, 9.8, 50.1],
            [1.52, 2.75, 3.02, 2.25],
            [125.9, 241.8, 81.7, 30.0],
            [1.53, 1.05, 1.36, 1.01],
            [125.8, 92.6, 36.7, 13.9],
        ],
    ),
    (
        "btrfs-nodatacow",
        [
            [37.7, 34.5, 78.9, 159.2],
            [6.01, 5.97, 4.20, 4.88],
            [86.8, 97.5, 56.2, 25.7],
            [3.32, 2.73, 2.31, 2.86],
            [47.9, 44.6, 30.7, 14.9],
        ],
    ),
];

/// Throughput of the paper's SFS by utilization, MB/s on SSD-H, SSD-M and SSD-L, and of its LFS on SSD-M (its figures 8
/// and 9).
pub(super) struct PublishedCurves {
    pub(super) workload: &'static str,
    pub(super) sfs: [[f64; 6]; 3],
    pub(super) lfs: [f64; 6],
}

/// The curves of each workload; the last is the paper's RES, which a trace replaces here.
pub(super) const SWEEP: [PublishedCurves; 4] = [
    PublishedCurves {
        workload: "zipf:0.99",
        sfs: [
            [155.9, 145.2, 152.0, 105.4, 83.1, 42.2],
            [149.7, 144.4, 139.1, 108.5, 80.4, 52.0],
            [37.8, 34.7, 34.4, 26.8, 19.7, 18.9],
        ],
        lfs: [104.7, 78.4, 76.3, 53.9, 47.2, 31.1],
    },
    PublishedCurves {
        workload: "uniform",
        sfs: [
            [111.7, 105.6, 97.7, 60.4, 41.2, 14.6],
            [110.2, 107.2, 90.0, 58.6, 41.2, 19.1],
            [30.0, 30.9, 25.6, 19.5, 15.2, 9.8],
        ],
        lfs: [70.9, 67.3, 49.3, 42.2, 32.1, 16.1],
    },
    PublishedCurves {
        workload: "tpcc",
        sfs: [
            [213.7, 204.3, 192.9, 170.0, 148.2, 93.2],
            [202.9, 191.3, 172.2, 157.1, 142.8, 92.2],
            [45.3, 44.3, 43.4, 37.2, 32.9, 25.5],
        ],
        lfs: [183.3, 122.1, 92.7, 84.8, 73.1, 36.6],
    },
    PublishedCurves {
        workload: "cloudphysics-vm",
        sfs: [
            [349.6, 342.0, 355.7, 346.0, 224.4, 39.8],
            [369.0, 319.1, 342.6, 330.6, 212.9, 70.5],
            [93.4, 88.4, 88.2, 84.7, 64.4, 34.8],
        ],
        lfs: [330.2, 297.6, 272.6, 176.2, 126.8, 59.4],
    },
];

pub(super) const UTILIZATIONS: [f64; 6] = [0.4, 0.6, 0.7, 0.8, 0.85, 0.9];

/// Returns the paper's value for a filesystem and a workload, if there is one.
pub(super) fn published(filesystem: &str, figure: usize, workload: usize) -> Option<f64> {
    let name = filesystem.split(',').next().unwrap_or(filesystem);
    let found = PAPER.iter().find(|(paper, _)| *paper == name);
    found.map(|(_, figures)| figures[figure][workload])
}
