// SPDX-License-Identifier: Apache-2.0

package loader

import "context"

func (l *Loader) attachSteering(context.Context) {}
