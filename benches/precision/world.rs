//! A simulated night of measurements whose truth is known.
//!
//! `ln duration(i, j, l) = mu_i + D_device(j) + T_j + k_i c_i (rho Z_j + sqrt(1 - rho^2) E_ij) + c_i L_ijl`, rounded to the
//! timer's step. `mu_i` is the truth, `D` an effect of the device, `T_j` a shift of collection j that all kernels share,
//! `Z_j` its state, `E_ij` the case's own share of it, `c_i` the noise of a launch and `L` noise with a standard deviation
//! of 1.

use npubench::base::stats::{CaseCosts, CollectionMedian, SplitMix64};

/// Step of the timer in seconds.
pub(crate) const STEP: f64 = 20e-9;
/// Number of devices.
pub(crate) const DEVICES: usize = 16;
/// Cases of a collection.
const COLLECTION_CASES: usize = 50;
/// Seconds of a collection without its cases: start and export.
const COLLECTION_SECONDS: f64 = 15.0;
/// Seconds of a case without its launches.
const CASE_SECONDS: f64 = 0.03;
/// Seconds between two launches.
const GAP_SECONDS: f64 = 10e-6;
const WARM_UP: f64 = 5.0;

/// Distribution of launches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LaunchNoise {
    Normal,
    /// Autoregressive with this coefficient.
    Autoregressive(f64),
    /// 30 % of the launches in a second mode, two standard deviations from the first.
    TwoModes,
}

/// Parameters of a night.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NightModel {
    pub(crate) title: &'static str,
    pub(crate) noise: LaunchNoise,
    /// Standard deviation of a collection's offset in units of launch noise.
    pub(crate) kappa: f64,
    /// Standard deviation of ln kappa over cases.
    pub(crate) spread: f64,
    /// Correlation of a case's offset with the state of the collection.
    pub(crate) rho: f64,
    /// Standard deviation of the shift of a collection.
    pub(crate) clock: f64,
    /// True if a fifth of the collections have an offset of two standard deviations.
    pub(crate) has_modes: bool,
    /// Standard deviation of devices.
    pub(crate) devices: f64,
    /// Logarithm of the factor of the first device.
    pub(crate) slow_device: f64,
}

impl NightModel {
    pub(crate) const fn new(title: &'static str, kappa: f64) -> Self {
        Self {
            title,
            noise: LaunchNoise::Normal,
            kappa,
            spread: 0.0,
            rho: 0.0,
            clock: 0.0,
            has_modes: false,
            devices: 0.0,
            slow_device: 0.0,
        }
    }
}

/// Random numbers.
pub(crate) struct Draws(SplitMix64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Uniform over (0, 1].
    fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Normal deviate by Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            let other = self.0.next_below(index as u64 + 1) as usize;
            items.swap(index, other);
        }
    }
}

/// Median of the noise with two modes: solves 0.7 Phi(q / 0.4) + 0.3 Phi((q - 2) / 0.4) = 0.5.
const TWO_MODES_MEDIAN: f64 = 0.226_377_2;

/// A case of a night.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedCase {
    /// True median in seconds.
    pub(crate) seconds: f64,
    /// Noise of its launches.
    pub(crate) noise: f64,
    /// Offset of a collection in units of launch noise.
    kappa: f64,
    /// Devices in the order in which they measure it.
    devices: Vec<usize>,
    collections: usize,
    launches: u32,
    /// Device time so far.
    pub(crate) cost: f64,
}

impl SimulatedCase {
    /// Step of the timer relative to the median.
    pub(crate) fn resolution(&self) -> f64 {
        STEP / self.seconds
    }
}

/// State and medians of a night.
pub(crate) struct SimulatedNight {
    model: NightModel,
    draws: Draws,
    pub(crate) cases: Vec<SimulatedCase>,
    pub(crate) medians: Vec<CollectionMedian>,
    collections: usize,
    /// Device of each collection.
    pub(crate) device_of_collection: Vec<usize>,
    /// Logarithm of the factor of each device.
    devices: Vec<f64>,
}

impl SimulatedNight {
    pub(crate) fn new(model: NightModel, cases: usize, seed: u64) -> Self {
        let mut draws = Draws::new(seed);
        let mut devices: Vec<f64> = (0..DEVICES).map(|_| model.devices * draws.normal()).collect();
        devices[0] += model.slow_device;
        let mean = devices.iter().sum::<f64>() / DEVICES as f64;
        devices.iter_mut().for_each(|device| *device -= mean);
        let cases = (0..cases).map(|_| simulated_case(&model, &mut draws)).collect();
        Self {
            model,
            draws,
            cases,
            medians: Vec::new(),
            collections: 0,
            device_of_collection: Vec::new(),
            devices,
        }
    }

    /// Random cases, `count` of them.
    pub(crate) fn random_cases(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.cases.len()).collect();
        self.draws.shuffle(&mut all);
        all.truncate(count);
        all
    }

    /// Measures cases once more: each on a device that it has not had, in random company.
    pub(crate) fn measure_crossed(&mut self, cases: &[usize]) {
        let mut by_device = vec![Vec::new(); DEVICES];
        for &case in cases {
            let own = &self.cases[case];
            by_device[own.devices[own.collections % DEVICES]].push(case);
        }
        for (device, mut cases) in by_device.into_iter().enumerate() {
            self.draws.shuffle(&mut cases);
            self.measure_on(device, &cases);
        }
    }

    /// Measures cases once more in the same order on the same device.
    pub(crate) fn measure_uncrossed(&mut self, cases: &[usize]) {
        for (number, chunk) in cases.chunks(COLLECTION_CASES).enumerate() {
            self.measure_on(number % DEVICES, chunk);
        }
    }

    fn measure_on(&mut self, device: usize, cases: &[usize]) {
        let collections = cases.len().div_ceil(COLLECTION_CASES).max(1);
        for chunk in cases.chunks(cases.len().div_ceil(collections).max(1)) {
            let (shift, state) = (self.model.clock * self.draws.normal(), self.draws.normal());
            for &case in chunk {
                let offset = self.devices[device] + shift + self.own_offset(case, state);
                self.measure_case(case, offset);
                self.cases[case].cost += COLLECTION_SECONDS / chunk.len() as f64;
            }
            self.collections += 1;
            self.device_of_collection.push(device);
        }
    }

    fn own_offset(&mut self, case: usize, state: f64) -> f64 {
        let NightModel { rho, has_modes, .. } = self.model;
        let own = match has_modes {
            true if self.draws.uniform() < 0.2 => 2.0,
            true => -0.5,
            false => self.draws.normal(),
        };
        let case = &self.cases[case];
        case.kappa * case.noise * (rho * state + (1.0 - rho * rho).sqrt() * own)
    }

    fn measure_case(&mut self, index: usize, offset: f64) {
        let SimulatedCase { seconds, noise, launches, .. } = self.cases[index];
        let mut durations: Vec<f64> = self
            .unit_noise(launches)
            .into_iter()
            .map(|unit| ((seconds * (offset + noise * unit).exp() / STEP).round().max(1.0)) * STEP)
            .collect();
        let median = median_of(&mut durations);
        let mut deviations: Vec<f64> = durations.iter().map(|duration| (duration - median).abs()).collect();
        let spread = median_of(&mut deviations).max(STEP / 2.0);
        self.medians.push(CollectionMedian {
            case: index,
            collection: self.collections,
            log_median: (median * 1e9).ln(),
            launch_noise: 1.4826 * spread / median,
        });
        let case = &mut self.cases[index];
        case.collections += 1;
        case.cost += CASE_SECONDS + (f64::from(launches) + WARM_UP) * (seconds + GAP_SECONDS);
    }

    fn unit_noise(&mut self, count: u32) -> Vec<f64> {
        let mut previous = None;
        let mut unit = || match self.model.noise {
            LaunchNoise::Normal => self.draws.normal(),
            LaunchNoise::Autoregressive(coefficient) => {
                let fresh = self.draws.normal();
                let value = previous.map_or(fresh, |previous: f64| {
                    coefficient * previous + (1.0 - coefficient * coefficient).sqrt() * fresh
                });
                previous = Some(value);
                value
            }
            LaunchNoise::TwoModes => {
                let second = if self.draws.uniform() <= 0.3 { 2.0 } else { 0.0 };
                0.4 * self.draws.normal() + second - TWO_MODES_MEDIAN
            }
        };
        (0..count).map(|_| unit()).collect()
    }
}

fn case_costs(seconds: f64) -> CaseCosts {
    let launch = seconds + GAP_SECONDS;
    let fixed = COLLECTION_SECONDS / COLLECTION_CASES as f64 + CASE_SECONDS + WARM_UP * launch;
    CaseCosts { fixed, launch }
}

/// Durations from 5 us to 20 ms and noise from 0.2 to 5 %, both uniform in their logarithms.
fn simulated_case(model: &NightModel, draws: &mut Draws) -> SimulatedCase {
    let mut between = |least: f64, most: f64| least * (most / least).powf(draws.uniform());
    let (seconds, noise) = (between(5e-6, 20e-3), between(0.002, 0.05));
    let spread = model.spread * draws.normal() - model.spread * model.spread;
    let mut devices: Vec<usize> = (0..DEVICES).collect();
    draws.shuffle(&mut devices);
    let launches = case_costs(seconds).best_launches(1.0);
    SimulatedCase {
        seconds,
        noise,
        kappa: model.kappa * spread.exp(),
        devices,
        collections: 0,
        launches,
        cost: 0.0,
    }
}

/// Median, the mean of the middle two of an even number.
fn median_of(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { (values[middle - 1] + values[middle]) / 2.0 } else { values[middle] }
}
