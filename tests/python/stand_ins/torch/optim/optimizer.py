# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

hooks = []
register_optimizer_step_post_hook = hooks.append


class Optimizer:
    def step(self):
        for hook in hooks:
            hook(self, (), {})
