//! The measurement finds the erase block size of each model despite noise, and reports no size if
//! there is none.

use sfs_device::DeviceError;
use sfs_mkfs::measure::{Budget, Measurement, Probe, Region, measure};
use sfs_ssd::ftl::Layer;
use sfs_ssd::{HostRequest, RequestKind, Ssd, SsdConfig, SsdProfile, profiles};
use sfs_testkit::SeededRng;

const BLOCK: u64 = 4096;

/// A model in virtual time, with noise in every request.
struct Model {
    ssd: Ssd,
    now_ns: u64,
    noise_percent: u64,
    rng: SeededRng,
}

impl Model {
    fn new(config: &SsdConfig, noise_percent: u64, seed: u64) -> Model {
        let ssd = Ssd::new(config).expect("a device");
        Model { ssd, now_ns: 0, noise_percent, rng: SeededRng::new(seed) }
    }
}

impl Probe for Model {
    fn write(&mut self, address: u64, count: u64) -> Result<u64, DeviceError> {
        let request = HostRequest::new(RequestKind::Write, address * BLOCK, count * BLOCK);
        let completion = self.ssd.serve(&request, self.now_ns);
        let took_ns = completion.ended_ns - self.now_ns;
        self.now_ns = completion.ended_ns;
        let noise = self.rng.below(2 * self.noise_percent + 1);
        Ok(took_ns * (100 - self.noise_percent + noise) / 100)
    }
}

/// An hour of virtual time, which costs no real time.
const BUDGET: Budget = Budget { total_ns: 3_600_000_000_000, ..Budget::DEFAULT };

fn found(config: &SsdConfig, noise_percent: u64, seed: u64) -> Measurement {
    let mut model = Model::new(config, noise_percent, seed);
    let block_count = model.ssd.capacity() / BLOCK;
    let region = Region { block_count, partition_start: 0 };
    measure(&mut model, region, BUDGET, &mut |_| ()).expect("a model does not fail")
}

/// Returns the device of a profile, with a capacity of 1 GiB.
fn device(profile: SsdProfile) -> SsdConfig {
    profile.with_capacity(1 << 30).config()
}

#[test]
fn every_profile_has_its_erase_block_size_found_despite_noise() {
    for profile in profiles().into_iter().filter(|profile| profile.name != "fast12") {
        let name = profile.name;
        let size = profile.geometry.cluster_size();
        let config = device(profile);
        for (noise_percent, seed) in [(0, 1), (20, 1), (20, 2)] {
            let measurement = found(&config, noise_percent, seed);
            let what = format!("{name}, noise {noise_percent}%, seed {seed}:\n{measurement}");
            assert_eq!(measurement.segment_size, Some(size), "{what}");
        }
    }
}

#[test]
fn every_translation_layer_shows_its_erase_block_size() {
    let profile = || SsdProfile::by_name("mtron").expect("a profile");
    for layer in [Layer::GREEDY, Layer::Fast { log_blocks: 8 }, Layer::Bast { log_blocks: 8 }] {
        let config = device(profile().with_layer(layer));
        let measurement = found(&config, 20, 1);
        assert_eq!(measurement.segment_size, Some(4 << 20), "{layer}:\n{measurement}");
    }
}

/// A device that writes equally fast in any order.
struct Even;

impl Probe for Even {
    fn write(&mut self, _: u64, count: u64) -> Result<u64, DeviceError> {
        Ok(10_000 + count * 1_000)
    }
}

#[test]
fn a_device_without_erase_blocks_has_no_answer() {
    let region = Region { block_count: 1 << 18, partition_start: 0 };
    let measurement = measure(&mut Even, region, BUDGET, &mut |_| ()).expect("no failure");
    assert_eq!(measurement.segment_size, None);
    assert_eq!(measurement.rows.len(), 10, "all sizes from 64 MiB to 128 KiB");
    assert!(measurement.to_string().ends_with("found no erase block size"));
}

#[test]
fn a_measurement_stays_within_its_time_budget() {
    let region = Region { block_count: 1 << 18, partition_start: 0 };
    let budget = Budget { total_ns: 1_000_000_000, ..Budget::DEFAULT };
    let measurement = measure(&mut Even, region, budget, &mut |_| ()).expect("no failure");
    assert_eq!(measurement.segment_size, None);
    // A request of 64 MiB takes 16 ms of the budget.
    assert!((1000..=1017).contains(&measurement.elapsed_ms), "{measurement:?}");
}
