# SPDX-License-Identifier: Apache-2.0
# R: saveRDS of a list, as example(saveRDS) does; marks by patterns.
set.seed(1)
for (step in 1:4) {
	saveRDS(list(step = step, weights = rnorm(5000)), "state.rds")
	Sys.sleep(0.2)
}
